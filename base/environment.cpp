#include "base/environment.h"

#include <unistd.h>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <vector>

namespace dtrun {
namespace {

/// A table of variables that has been, or is, the process's. A thread may be reading it at any time
/// later, so it is never freed: they are all in one list, `older` leads from each to the next.
struct Table {
    std::string added;  ///< "NAME=value", or ""
    std::vector<char*> entries;
    Table* older = nullptr;
};

void keep(Table* table) {
    static std::atomic<Table*> newest{nullptr};
    table->older = newest;
    while (!newest.compare_exchange_weak(table->older, table)) {
    }
}

bool is_of(std::string_view entry, const std::string& name) {
    return entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=';
}

/// Puts a table without `name`, and with `added` unless that is "", in place of the present one.
void replace(const std::string& name, const std::string& added) {
    auto table = std::make_unique<Table>();
    table->added = added;
    const std::atomic_ref<char**> present(environ);
    char** before = present;
    do {
        table->entries.clear();
        for (char** entry = before; entry != nullptr && *entry != nullptr; ++entry)
            if (!is_of(*entry, name)) table->entries.push_back(*entry);
        if (!added.empty()) table->entries.push_back(table->added.data());
        table->entries.push_back(nullptr);
    } while (!present.compare_exchange_strong(before, table->entries.data()));
    keep(table.release());
}

}  // namespace

std::vector<std::string> own_environment() {
    std::vector<std::string> variables;
    for (char** entry = environ; *entry != nullptr; ++entry) variables.emplace_back(*entry);
    return variables;
}

void set_variable(const std::string& name, const std::string& value, IfSet if_set) {
    const char* const before = std::getenv(name.c_str());
    if (before != nullptr && (if_set == IfSet::keep || before == value)) return;
    replace(name, name + "=" + value);
}

void unset_variable(const std::string& name) {
    if (std::getenv(name.c_str()) != nullptr) replace(name, "");
}

}  // namespace dtrun
