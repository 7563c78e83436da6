#include "lab/report/picture.h"

#include <fmt/format.h>
#include <string_view>

namespace dtrun::lab {
namespace {

using std::string_view;

constexpr int kFigureWidth = 480;  // as chart_svg() draws it
constexpr int kFigureHeight = 300;
constexpr int kTitleHeight = 30;
constexpr int kGap = 24;

/// Colours of the page's light form; programs that print Markdown do not know variables of CSS.
constexpr string_view kPictureStyle = R"(<style>
text{font:12.5px "Segoe UI",Roboto,Arial,"Noto Sans CJK SC","PingFang SC","Microsoft YaHei",sans-serif;fill:#1b2026}
.title{font-size:15px;font-weight:600}
.tick{fill:#57606b;font-size:11.5px}.name{fill:#57606b}
.grid{stroke:#e3e7eb}.axis{stroke:#57606b}
.line{fill:none;stroke:currentColor;stroke-width:2;stroke-linejoin:round}
.whisker{stroke:currentColor;stroke-width:1.5;opacity:.45}
.leader{fill:none;stroke:currentColor;opacity:.4}
.label{fill:currentColor;font-weight:600}
.ideal,.note{color:#57606b}.ideal .line{stroke-width:1.5;stroke-dasharray:7 4}
.hollow{fill:#fff;stroke:currentColor;stroke-width:1.5}
.s0{color:#0b63b5}.s1{color:#c24a00}.s2{color:#00795a}.s3{color:#9c3a8b}
.s4{color:#7a6200}.s5{color:#3d4db8}.s6{color:#b3124f}.s7{color:#4a5560}
</style>
)";

}  // namespace

std::string picture_of(const FigureGroup& group) {
    const int count = static_cast<int>(group.figures.size());
    const int columns = count > 1 ? 2 : 1;
    const int width = columns * (kFigureWidth + kGap) + kGap;
    const int row_height = kTitleHeight + kFigureHeight + kGap;
    const int height = (count + columns - 1) / columns * row_height + kGap;
    std::string text = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} "
        "{1}\">\n<title>{2}</title>\n",
        width, height, html_text(group.title));
    text += kPictureStyle;
    text += fmt::format("<rect width=\"{}\" height=\"{}\" fill=\"#fff\"/>\n", width, height);
    for (int i = 0; i < count; ++i) {
        const Figure& figure = group.figures[static_cast<std::size_t>(i)];
        const int x = kGap + i % columns * (kFigureWidth + kGap);
        const int y = kGap + i / columns * row_height;
        text += fmt::format("<text class=\"title\" x=\"{}\" y=\"{}\">{}</text>\n", x, y + 14,
                            html_text(figure.title));
        const std::string chart = chart_svg(figure.chart);
        string_view drawing = chart;
        drawing.remove_prefix(string_view("<svg").size());
        text +=
            fmt::format("<svg x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" overflow=\"visible\"{}",
                        x, y + kTitleHeight, kFigureWidth, kFigureHeight, drawing);
    }
    return text + "</svg>\n";
}

}  // namespace dtrun::lab
