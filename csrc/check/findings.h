// What the checkers found in a run.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace fa4emu {

struct Finding {
    std::string kind;    // "race", "proxy fence", "uninitialised", ... ; docs/emulator.md lists them
    std::string text;    // with CTA, warps and PTX lines
    int line = 0;        // PTX line of the access that was found
    int other_line = 0;  // of what it conflicts with; 0: none
    uint64_t count = 1;  // how often it was seen
};

// Findings of the same kind at the same pair of lines are one, with the first one's text.
class Findings {
  public:
    bool known(const std::string& kind, int line, int other_line) {
        auto found = index_.find({kind, line, other_line});
        if (found == index_.end()) return false;
        all_[found->second].count++;
        return true;
    }
    void add(Finding finding) {
        auto [at, fresh] = index_.try_emplace({finding.kind, finding.line, finding.other_line}, all_.size());
        if (fresh)
            all_.push_back(std::move(finding));
        else
            all_[at->second].count += finding.count;
    }
    const std::vector<Finding>& all() const { return all_; }

  private:
    std::vector<Finding> all_;
    std::map<std::tuple<std::string, int, int>, size_t> index_;
};

}  // namespace fa4emu
