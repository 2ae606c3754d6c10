// Text -> ModuleText. Everything unknown is an error with its line; debug sections are skipped.
#include <cstring>
#include <stdexcept>

#include "lexer.h"
#include "module.h"
#include "words.h"

namespace fa4emu {

PtxError::PtxError(int line, const std::string& text, const std::string& reason)
    : std::runtime_error("PTX line " + std::to_string(line) + ": " + reason + ": " + text), line(line) {}

namespace {

uint32_t type_bytes(const std::string& type) {
    if (type == ".pred") return 0;
    size_t digit = type.find_first_of("0123456789");
    return digit == std::string::npos ? 0 : std::stoul(type.substr(digit)) / 8;
}

struct Register {
    RegClass cls;
    int index;
    int parts = 1;  // more: a vector of consecutive registers, such as a .b128 or .v4
};

using Scope = std::map<std::string, Register>;

class Parser {
  public:
    explicit Parser(const std::string& text) : tokens_(tokenize(text)) {}

    ModuleText run() {
        while (pos_ < tokens_.size()) module_statement();
        return std::move(module_);
    }

  private:
    const std::string& peek(size_t ahead = 0) const {
        static const std::string end;
        return pos_ + ahead < tokens_.size() ? tokens_[pos_ + ahead].text : end;
    }
    int line() const { return pos_ < tokens_.size() ? tokens_[pos_].line : -1; }
    std::string next() {
        if (pos_ >= tokens_.size()) throw PtxError(-1, "", "unexpected end of text");
        return tokens_[pos_++].text;
    }
    void expect(const char* text) {
        int at = line();
        std::string got = next();
        if (got != text) throw PtxError(at, got, std::string("expected '") + text + "'");
    }
    bool accept(const char* text) {
        if (peek() != text) return false;
        pos_++;
        return true;
    }
    uint32_t number() {
        int at = line();
        std::string word = next();
        try {
            return std::stoul(word, nullptr, 0);
        } catch (const std::exception&) {
            throw PtxError(at, word, "expected a number");
        }
    }

    void module_statement() {
        int at = line();
        std::string word = next();
        if (word == ".version") {
            next();
        } else if (word == ".target") {
            module_.target = next();
            while (accept(",")) next();
        } else if (word == ".address_size") {
            next();
        } else if (word == ".visible" || word == ".weak") {
            return;
        } else if (word == ".entry") {
            kernel();
        } else if (word == ".extern" || word == ".shared") {
            shared_variable(word == ".extern");
        } else if (word == ".file") {  // number, "name", and perhaps time and size
            int number_of_file = int(number());
            std::string name = next();
            if (name.size() >= 2) module_.files[number_of_file] = name.substr(1, name.size() - 2);
            while (line() == at) next();
        } else if (word == ".loc") {
            while (line() == at) next();
        } else if (word == ".section") {
            next();
            skip_braces();
        } else {
            throw PtxError(at, word, "unknown directive");
        }
    }

    void skip_braces() {
        expect("{");
        for (int depth = 1; depth > 0;) {
            std::string word = next();
            depth += (word == "{") - (word == "}");
        }
    }

    struct Variable {
        std::string name;
        uint32_t align, bytes;
    };

    // [.align n] .type name[count];
    Variable variable() {
        Variable out;
        out.align = accept(".align") ? number() : 4;
        out.bytes = type_bytes(next());
        out.name = next();
        if (accept("[")) {
            if (peek() != "]") out.bytes *= number();
            expect("]");
        }
        expect(";");
        return out;
    }

    // Gives the variable its place behind those before it.
    static void place(const Variable& v, std::map<std::string, uint32_t>& offsets, uint32_t& bytes) {
        uint32_t offset = (bytes + v.align - 1) / v.align * v.align;
        offsets[v.name] = offset;
        bytes = offset + v.bytes;
    }

    void shared_variable(bool external) {
        if (external) expect(".shared");
        Variable v = variable();
        if (external)
            dynamic_shared_.push_back(v.name);
        else
            place(v, module_.shared_offsets, module_.static_shared_bytes);
        for (const auto& dynamic : dynamic_shared_)
            module_.shared_offsets[dynamic] = (module_.static_shared_bytes + 1023) / 1024 * 1024;
    }

    void kernel() {
        KernelText kernel;
        kernel.name = next();
        expect("(");
        while (!accept(")")) {
            expect(".param");
            Param param;
            uint32_t align = accept(".align") ? number() : 0;
            uint32_t bytes = type_bytes(next());
            param.name = next();
            param.align = align ? align : bytes;
            if (accept("[")) {
                bytes *= number();
                expect("]");
            }
            param.size = bytes;
            param.offset = (kernel.params_bytes + param.align - 1) / param.align * param.align;
            kernel.params_bytes = param.offset + bytes;
            kernel.params.push_back(param);
            accept(",");
        }
        while (peek() != "{") directive(kernel);
        kernel_ = &kernel;
        scopes_.clear();
        labels_.clear();
        file_ = source_line_ = 0;
        block();
        resolve_labels(kernel);
        module_.kernels[kernel.name] = kernel;
    }

    void directive(KernelText& kernel) {
        int at = line();
        std::string word = next();
        if (word == ".reqntid" || word == ".maxntid") {
            uint32_t* out = kernel.reqntid;
            out[0] = number(), out[1] = out[2] = 1;
            for (int i = 1; accept(","); i++) out[i] = number();
        } else if (word == ".minnctapersm") {
            kernel.min_ctas_per_sm = number();
        } else if (word == ".maxnreg") {
            kernel.maxnreg = number();
        } else if (word == ".maxnctapersm") {
            number();
        } else {
            throw PtxError(at, word, "unknown kernel directive");
        }
    }

    void block() {
        expect("{");
        scopes_.emplace_back();
        label_scopes_.push_back(++label_scope_count_);
        while (!accept("}")) statement();
        scopes_.pop_back();
        label_scopes_.pop_back();
    }

    void statement() {
        if (peek() == "{") return block();
        if (peek() == ".reg") return declare_registers();
        if (peek() == ".loc") {
            int at = line();
            next();
            file_ = int(number()), source_line_ = int(number());
            while (line() == at) next();  // column, and what it was inlined into
            return;
        }
        if (peek() == ".pragma") {
            while (next() != ";") {
            }
            return;
        }
        if (accept(".local")) return place(variable(), kernel_->local_offsets, kernel_->local_bytes);
        if (peek() == ".shared") {
            next();
            return shared_variable(false);
        }
        if (peek(1) == ":") {
            std::string name = next();
            next();
            define_label(name);
            return;
        }
        instruction();
    }

    void declare_registers() {
        expect(".reg");
        int at = line();
        std::string type = next();
        int parts = type == ".v2" ? 2 : type == ".v4" ? 4 : 1;
        if (parts > 1) type = next();
        uint32_t bytes = type_bytes(type);
        bool wide = type == ".b128";
        if (!wide && type != ".pred" && (bytes == 0 || bytes > 8))
            throw PtxError(at, type, "unsupported register type");
        RegClass cls = type == ".pred" ? RegClass::pred : bytes == 8 || wide ? RegClass::b64 : RegClass::b32;
        int& count = kernel_->registers[int(cls)];
        auto declare = [&](const std::string& name) {
            if (parts > 1)
                for (int i = 0; i < parts; i++) scopes_.back()[name + '.' + "xyzw"[i]] = {cls, count + i};
            scopes_.back()[name] = {cls, count, wide ? 2 : parts};
            count += wide ? 2 : parts;
        };
        do {
            std::string name = next();
            if (accept("<")) {
                uint32_t n = number();
                expect(">");
                for (uint32_t i = 0; i < n; i++) declare(name + std::to_string(i));
            } else {
                declare(name);
            }
        } while (accept(","));
        expect(";");
    }

    // Labels of inline asm blocks are local to their braces: the innermost scope that defines the name wins.
    void define_label(const std::string& name) {
        labels_[name].push_back({label_scopes_.back(), int(kernel_->instructions.size())});
    }

    void resolve_labels(KernelText& kernel) {
        for (size_t i = 0; i < kernel.instructions.size(); i++)
            for (auto& operand : kernel.instructions[i].operands)
                if (operand.kind == Operand::label) {
                    int best = -1;
                    size_t depth = 0;
                    for (const auto& [scope, target] : labels_[operand.name]) {
                        const auto& chain = operand.items;  // scopes that enclose the branch, see operand()
                        for (size_t d = 0; d < chain.size(); d++)
                            if (int(chain[d].value) == scope && d + 1 > depth) best = target, depth = d + 1;
                    }
                    if (best < 0) throw PtxError(kernel.instructions[i].line, operand.name, "unknown label");
                    operand.index = best;
                    operand.items.clear();
                }
    }

    void instruction() {
        RawInst inst;
        inst.line = line();
        inst.file = file_, inst.source_line = source_line_;
        size_t start = pos_;
        if (accept("@")) {
            inst.guard_negated = accept("!");
            Register reg = find(next(), inst.line);
            if (reg.cls != RegClass::pred) throw PtxError(inst.line, peek(), "guard is not a predicate");
            inst.guard = reg.index;
        }
        split_opcode(next(), inst);
        bool branches = inst.base == "bra";
        while (peek() != ";") {
            inst.operands.push_back(operand(inst.line, branches));
            if (!accept(",") && !accept("|")) break;
        }
        for (size_t i = start; i < pos_; i++) inst.text += tokens_[i].text + " ";
        expect(";");
        kernel_->instructions.push_back(std::move(inst));
    }

    Register find(const std::string& name, int at) const {
        for (size_t i = scopes_.size(); i-- > 0;) {
            auto found = scopes_[i].find(name);
            if (found != scopes_[i].end()) return found->second;
        }
        throw PtxError(at, name, "unknown register");
    }
    bool known(const std::string& name) const {
        for (const auto& scope : scopes_)
            if (scope.count(name)) return true;
        return false;
    }

    Operand operand(int at, bool branches) {
        Operand out;
        if (accept("!")) {
            out = operand(at, false);
            out.negated = true;
            return out;
        }
        if (accept("{")) {
            out.kind = Operand::vector;
            while (!accept("}")) {
                out.items.push_back(operand(at, false));
                accept(",");
            }
            return out;
        }
        if (accept("[")) {
            out.kind = Operand::address;
            out.items.push_back(operand(at, false));
            if (accept("+")) out.value = operand(at, false).value;
            if (accept(",")) out.items.push_back(operand(at, false));
            expect("]");
            return out;
        }
        bool minus = accept("-");
        std::string word = next();
        if (branches) {
            out.kind = Operand::label;
            out.name = word;
            for (int scope : label_scopes_) {
                Operand enclosing;
                enclosing.value = uint64_t(scope);
                out.items.push_back(enclosing);
            }
            return out;
        }
        if (word == "_") {
            out.kind = Operand::sink;
        } else if (known(word)) {
            Register reg = find(word, at);
            out.kind = Operand::reg, out.cls = reg.cls, out.index = reg.index;
            if (reg.parts > 1) {
                Operand vector;
                vector.kind = Operand::vector, vector.items.assign(size_t(reg.parts), out);
                for (int i = 0; i < reg.parts; i++) vector.items[size_t(i)].index += i;
                return vector;
            }
        } else if (word[0] == '%') {
            out.kind = Operand::special, out.name = word.substr(1);
        } else if (std::isdigit(static_cast<unsigned char>(word[0]))) {
            literal(word, minus, out, at);
        } else {
            out.kind = Operand::symbol, out.name = word;
        }
        return out;
    }

    std::vector<Token> tokens_;
    size_t pos_ = 0;
    ModuleText module_;
    KernelText* kernel_ = nullptr;
    int file_ = 0, source_line_ = 0;  // of the last .loc
    std::vector<Scope> scopes_;
    std::vector<std::string> dynamic_shared_;
    std::vector<int> label_scopes_;
    int label_scope_count_ = 0;
    std::map<std::string, std::vector<std::pair<int, int>>> labels_;  // name -> (scope, instruction)
};

}  // namespace

ModuleText parse(const std::string& text) { return Parser(text).run(); }

}  // namespace fa4emu
