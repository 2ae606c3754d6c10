#include "lexer.h"

#include <cctype>

namespace fa4emu {

namespace {
bool is_word(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '%' || c == '.' || c == ':';
}
}  // namespace

// ':' belongs to a word only inside modifiers such as cta_group::1; a single ':' ends a label.
std::vector<Token> tokenize(const std::string& text) {
    std::vector<Token> tokens;
    int line = 1;
    for (size_t i = 0; i < text.size();) {
        char c = text[i];
        if (c == '\n') {
            line++, i++;
        } else if (std::isspace(static_cast<unsigned char>(c)) || c == '\0') {
            i++;
        } else if (text.compare(i, 2, "//") == 0) {
            while (i < text.size() && text[i] != '\n') i++;
        } else if (text.compare(i, 2, "/*") == 0) {
            for (i += 2; i < text.size() && text.compare(i, 2, "*/") != 0; i++) line += text[i] == '\n';
            i += 2;
        } else if (c == '"') {
            size_t end = text.find('"', i + 1);
            if (end == std::string::npos) end = text.size() - 1;
            tokens.push_back({text.substr(i, end - i + 1), line});
            i = end + 1;
        } else if (is_word(c) && c != ':') {
            size_t start = i;
            while (i < text.size() && is_word(text[i])) {
                if (text[i] == ':') {
                    if (text.compare(i, 2, "::") != 0) break;
                    i++;
                }
                i++;
            }
            tokens.push_back({text.substr(start, i - start), line});
        } else {
            tokens.push_back({std::string(1, c), line});
            i++;
        }
    }
    return tokens;
}

}  // namespace fa4emu
