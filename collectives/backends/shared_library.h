#pragma once

#include <dlfcn.h>
#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <utility>

namespace dtrun::collectives {

/// The first of these libraries that the loader finds; it is never closed. nullptr: none
inline void* open_any(std::initializer_list<const char*> names) {
    for (const char* name : names)
        if (void* const library = ::dlopen(name, RTLD_LAZY | RTLD_LOCAL)) return library;
    return nullptr;
}

/// A function of a library. nullptr: it has none of that name, or `library` is nullptr
template <class Function>
Function* function_of(void* library, const char* name) {
    return library ? reinterpret_cast<Function*>(::dlsym(library, name)) : nullptr;
}

/// Binds the functions of a library to pointers, and remembers the first that is missing.
class Binder {
public:
    /// \param prefix  of every name
    explicit Binder(void* library, std::string prefix = {})
        : library_(library), prefix_(std::move(prefix)) {}

    template <class Function>
    bool optional(const char* name, Function*& to) {
        to = function_of<Function>(library_, (prefix_ + name).c_str());
        return to != nullptr;
    }
    template <class Function>
    void required(const char* name, Function*& to) {
        if (!optional(name, to) && missing_.empty()) missing_ = prefix_ + name;
    }
    const std::string& missing() const { return missing_; }

private:
    void* library_;
    std::string prefix_;
    std::string missing_;
};

/// The folder of the file that has a function's code, links resolved, also once the file is gone: what is shipped
/// with it is beside it. Never relative, as anybody's code may lie in the current directory; where the folder cannot be
/// told it is the root, in which nothing is found.
template <class Function>
std::filesystem::path folder_of(Function* function) {
    Dl_info info{};
    if (::dladdr(reinterpret_cast<const void*>(function), &info) == 0) return "/";
    std::error_code gone;
    const std::filesystem::path real = std::filesystem::canonical(info.dli_fname, gone);
    const std::filesystem::path file = gone ? std::filesystem::path(info.dli_fname) : real;
    return file.is_absolute() ? file.parent_path() : "/";
}

/// The value of an environment variable; "" if it is not set.
inline std::string environment_text(const char* name) {
    const char* const value = std::getenv(name);
    return value ? value : "";
}

}  // namespace dtrun::collectives
