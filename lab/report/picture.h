#pragma once

#include "lab/report/figures.h"

#include <string>

namespace dtrun::lab {

/// Figures as one SVG file that stands for itself, two of them beside each other, black on white.
std::string picture_of(const FigureGroup& group);

}  // namespace dtrun::lab
