#include "base/text_layout.h"

#include "base/strings.h"

namespace dtrun {

std::string wrap(std::string_view text, std::size_t indent, std::size_t columns) {
    std::string lines;
    std::size_t used = 0;  // columns of the line that is being filled
    for (const std::string_view word : split(text, ' ')) {
        if (used != 0 && used + 1 + word.size() > columns) {
            lines += '\n';
            used = 0;
        }
        const std::size_t blanks = used == 0 ? indent : 1;
        lines.append(blanks, ' ').append(word);
        used += blanks + word.size();
    }
    return lines + '\n';
}

std::string two_columns(std::string_view left, std::string_view right, std::size_t middle,
                        std::size_t columns) {
    const std::string first = wrap(left, 2, columns);  // whole lines
    const std::string second = wrap(right, middle, columns);
    if (first.size() + 2 > middle) return first + second;
    return first.substr(0, first.size() - 1) + second.substr(first.size() - 1);
}

}  // namespace dtrun
