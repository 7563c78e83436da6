#pragma once
// Precompiled once for all code without an event loop: what nearly every file includes.

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <chrono>
#include <expected>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
