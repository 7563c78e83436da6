#pragma once
// Precompiled once for the whole project: what nearly every file includes and what is slow to read.

#include "base/asio.h"

#include <fmt/format.h>
#include <algorithm>
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
