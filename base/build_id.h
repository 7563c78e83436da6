#pragma once

#include "base/result.h"

#include <string>

namespace dtrun {

/// The GNU build id of an ELF file: a hash that the linker made of its content, in hexadecimal.
/// Errc: not_found, denied, invalid_input (no 64-bit ELF file of this byte order, or no build id)
Result<std::string> elf_build_id(const std::string& path);

}  // namespace dtrun
