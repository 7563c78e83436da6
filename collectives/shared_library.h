#pragma once

#include <dlfcn.h>
#include <cstdlib>
#include <initializer_list>
#include <string>

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

/// The value of an environment variable; "" if it is not set.
inline std::string environment_text(const char* name) {
    const char* const value = std::getenv(name);
    return value ? value : "";
}

}  // namespace dtrun::collectives
