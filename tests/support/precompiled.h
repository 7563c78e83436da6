#pragma once

#include "base/precompiled.h"

#include <catch2/catch.hpp>
#include <random>
