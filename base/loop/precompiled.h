#pragma once
// Precompiled once for all code that runs on an event loop.

#include "base/loop/asio.h"
#include "base/precompiled.h"
