#pragma once

#include "base/loop/precompiled.h"
#include "tests/support/catch.h"

#include <random>
