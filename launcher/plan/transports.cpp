#include "launcher/plan/transports.h"

#include "base/strings.h"

namespace dtrun::plan {

std::string_view name_of(Transport transport) {
    for (const TransportRow& row : kTransports)
        if (row.transport == transport) return row.shown;
    return "";
}

std::vector<std::string> transport_words(std::string_view TransportRow::*words) {
    std::vector<std::string> all;
    for (const TransportRow& row : kTransports)
        for (const std::string_view word : split(row.*words, ' '))
            if (!word.empty()) all.emplace_back(word);
    return all;
}

Result<Transport> find_transport(std::string_view word, std::string_view TransportRow::*words) {
    for (const TransportRow& row : kTransports)
        for (const std::string_view known : split(row.*words, ' '))
            if (!known.empty() && known == word) return row.transport;
    return fail(Errc::invalid_input, "'{}' is not one of {}", word,
                join_names(transport_words(words)));
}

}  // namespace dtrun::plan
