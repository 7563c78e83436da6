#include "lab/rank/images.h"
#include "lab/rank/random.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

namespace dtrun::lab::rank {

namespace {

struct Point {
    float x, y;
};

/// A smooth curve through points, or straight lines between them.
struct Stroke {
    bool smooth;
    std::vector<Point> points;
};
using Glyph = std::vector<Stroke>;

/// In a box from (0, 0), upper left, to (1, 1).
const std::array<std::vector<Glyph>, kDigits>& glyphs() {
    static const std::array<std::vector<Glyph>, kDigits> all{{
        {{{true,
           {{.5f, .06f},
            {.24f, .22f},
            {.18f, .52f},
            {.27f, .83f},
            {.5f, .94f},
            {.74f, .82f},
            {.82f, .5f},
            {.75f, .2f},
            {.5f, .06f}}}}},
        {{{false, {{.54f, .06f}, {.5f, .94f}}}},
         {{false, {{.34f, .24f}, {.55f, .06f}, {.53f, .94f}}}}},
        {{{true, {{.22f, .26f}, {.42f, .07f}, {.7f, .14f}, {.74f, .38f}, {.5f, .66f}, {.2f, .92f}}},
          {false, {{.2f, .92f}, {.82f, .9f}}}},
         {{true,
           {{.2f, .24f},
            {.46f, .06f},
            {.74f, .24f},
            {.6f, .58f},
            {.32f, .88f},
            {.2f, .8f},
            {.4f, .76f},
            {.82f, .92f}}}}},
        {{{true,
           {{.24f, .14f},
            {.54f, .06f},
            {.74f, .24f},
            {.6f, .44f},
            {.42f, .48f},
            {.66f, .54f},
            {.78f, .72f},
            {.56f, .92f},
            {.2f, .86f}}}},
         {{false, {{.22f, .1f}, {.74f, .08f}, {.46f, .42f}}},
          {true, {{.46f, .42f}, {.74f, .54f}, {.74f, .8f}, {.48f, .94f}, {.2f, .84f}}}}},
        {{{false, {{.58f, .06f}, {.18f, .62f}, {.84f, .62f}}},
          {false, {{.64f, .3f}, {.62f, .94f}}}},
         {{true, {{.26f, .08f}, {.22f, .34f}, {.32f, .5f}, {.72f, .46f}}},
          {false, {{.76f, .08f}, {.7f, .94f}}}}},
        {{{false, {{.78f, .08f}, {.32f, .1f}, {.27f, .44f}}},
          {true,
           {{.27f, .44f}, {.56f, .38f}, {.78f, .6f}, {.66f, .86f}, {.4f, .94f}, {.2f, .84f}}}}},
        {{{true,
           {{.68f, .06f},
            {.4f, .24f},
            {.24f, .54f},
            {.28f, .82f},
            {.52f, .94f},
            {.76f, .8f},
            {.72f, .58f},
            {.5f, .5f},
            {.28f, .66f}}}}},
        {{{false, {{.18f, .1f}, {.8f, .1f}, {.42f, .94f}}}},
         {{true, {{.18f, .14f}, {.5f, .1f}, {.8f, .08f}, {.6f, .44f}, {.46f, .94f}}},
          {false, {{.34f, .52f}, {.74f, .5f}}}}},
        {{{true,
           {{.5f, .48f},
            {.27f, .3f},
            {.32f, .12f},
            {.52f, .06f},
            {.72f, .14f},
            {.74f, .32f},
            {.5f, .48f},
            {.24f, .66f},
            {.26f, .86f},
            {.5f, .94f},
            {.75f, .86f},
            {.76f, .66f},
            {.5f, .48f}}}}},
        {{{true,
           {{.72f, .36f},
            {.5f, .5f},
            {.27f, .4f},
            {.28f, .16f},
            {.52f, .06f},
            {.72f, .18f},
            {.74f, .36f},
            {.7f, .66f},
            {.58f, .94f}}}},
         {{true, {{.72f, .3f}, {.48f, .5f}, {.26f, .36f}, {.34f, .12f}, {.6f, .08f}, {.74f, .24f}}},
          {false, {{.74f, .24f}, {.66f, .94f}}}}},
    }};
    return all;
}

/// The curve of Catmull and Rom through points, as short lines.
std::vector<Point> smoothed(const std::vector<Point>& points) {
    constexpr int kSteps = 5;
    std::vector<Point> line{points.front()};
    for (std::size_t i = 0; i + 1 < points.size(); ++i) {
        const Point a = points[i == 0 ? 0 : i - 1];
        const Point b = points[i];
        const Point c = points[i + 1];
        const Point d = points[std::min(i + 2, points.size() - 1)];
        for (int step = 1; step <= kSteps; ++step) {
            const float t = static_cast<float>(step) / kSteps;
            const auto between = [t](float p, float q, float r, float s) {
                return 0.5f * (2 * q + (r - p) * t + (2 * p - 5 * q + 4 * r - s) * t * t +
                               (3 * q - p - 3 * r + s) * t * t * t);
            };
            line.push_back({between(a.x, b.x, c.x, d.x), between(a.y, b.y, c.y, d.y)});
        }
    }
    return line;
}

/// How one digit of one hand differs from the glyph.
class Hand {
public:
    explicit Hand(Random& random)
        : random_(random),
          width_(random.uniform(13, 19)),
          height_(random.uniform(17, 21.5f)),
          slant_(0.18f * random.normal()),
          turn_(0.1f * random.normal()),
          x_(13.5f + 0.9f * random.normal()),
          y_(13.5f + 0.8f * random.normal()) {}

    /// Where a point of the box lies in the image, in pixels.
    Point place(const Point& point) {
        const float x = (point.x - 0.5f + kTremble * random_.normal()) * width_;
        const float y = (point.y - 0.5f + kTremble * random_.normal()) * height_;
        const float slanted = x - slant_ * y;
        return {x_ + slanted - turn_ * y, y_ + y + turn_ * slanted};
    }

private:
    static constexpr float kTremble = 0.034f;  // of the box
    Random& random_;
    float width_, height_, slant_, turn_, x_, y_;
};

/// Ink of a straight line: full within half its width, and one pixel of soft border.
void draw_line(Point from, Point to, float half_width, std::span<float> ink) {
    const float reach = half_width + 1;
    const auto clamp = [](float value) {
        return static_cast<std::size_t>(std::clamp(value, 0.0f, float{kImageSide - 1}));
    };
    const Point along{to.x - from.x, to.y - from.y};
    const float length_squared = std::max(along.x * along.x + along.y * along.y, 1e-6f);
    for (std::size_t row = clamp(std::min(from.y, to.y) - reach);
         row <= clamp(std::max(from.y, to.y) + reach); ++row) {
        for (std::size_t column = clamp(std::min(from.x, to.x) - reach);
             column <= clamp(std::max(from.x, to.x) + reach); ++column) {
            const Point here{static_cast<float>(column) - from.x, static_cast<float>(row) - from.y};
            const float at =
                std::clamp((here.x * along.x + here.y * along.y) / length_squared, 0.0f, 1.0f);
            const float dx = here.x - at * along.x;
            const float dy = here.y - at * along.y;
            const float distance = std::sqrt(dx * dx + dy * dy);
            float& pixel = ink[row * kImageSide + column];
            pixel = std::max(pixel, std::clamp(half_width + 0.5f - distance, 0.0f, 1.0f));
        }
    }
}

void draw_digit(std::size_t digit, Random& random, std::uint8_t* image) {
    std::array<float, kImageBytes> ink{};
    const auto& ways = glyphs()[digit];
    const Glyph& glyph = ways[random.below(static_cast<std::uint32_t>(ways.size()))];
    Hand hand(random);
    const float half_width = random.uniform(0.8f, 1.8f);
    for (const Stroke& stroke : glyph) {
        std::vector<Point> points;
        for (const Point& point : stroke.points) points.push_back(hand.place(point));
        if (stroke.smooth) points = smoothed(points);
        for (std::size_t i = 0; i + 1 < points.size(); ++i)
            draw_line(points[i], points[i + 1], half_width, ink);
    }
    const float darkness = random.uniform(0.65f, 1);
    const float noise = random.uniform(0, 0.14f);
    for (std::size_t i = 0; i < kImageBytes; ++i) {
        const float value = darkness * ink[i] + noise * random.normal();
        image[i] = static_cast<std::uint8_t>(std::clamp(value, 0.0f, 1.0f) * 255 + 0.5f);
    }
}

}  // namespace

Images draw_digits(std::size_t count, std::uint64_t seed) {
    Images images;
    images.pixels.resize(count * kImageBytes);
    images.labels.resize(count);
    Random random(seed);
    for (std::size_t i = 0; i < count; ++i) {
        images.labels[i] = static_cast<std::uint8_t>(random.below(kDigits));
        draw_digit(images.labels[i], random, images.pixels.data() + i * kImageBytes);
    }
    return images;
}

DataSet generated_digits() {
    return {draw_digits(6'000, 1), draw_digits(2'000, 2), "generated digits"};
}

}  // namespace dtrun::lab::rank
