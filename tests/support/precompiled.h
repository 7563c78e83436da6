#pragma once

#include "base/loop/precompiled.h"

#include <catch2/catch.hpp>
#include <random>
