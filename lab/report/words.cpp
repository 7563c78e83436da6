#include "lab/report/words.h"

namespace dtrun::lab {

const ReportWords& words_of(Language language) {
    static constexpr ReportWords kEnglish{
#define WORD(name, english, chinese) .name = english,
#include "lab/report/words.def"
#undef WORD
    };
    static constexpr ReportWords kChinese{
#define WORD(name, english, chinese) .name = chinese,
#include "lab/report/words.def"
#undef WORD
    };
    return language == Language::chinese ? kChinese : kEnglish;
}

}  // namespace dtrun::lab
