#pragma once
// Views of made-up jobs, for tests of what is shown of them.

#include <fmt/format.h>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <string_view>
#include <utility>

namespace dtrun::watch {

/// A job whose ranks are at step 40 of 9.5 each second, `each` of them on each of the hosts s1, s2 and so on.
inline boost::json::object a_job(int hosts, int each) {
    boost::json::object view;
    view["job"] = "0123456789abcdef";
    view["state"] = "running";
    view["ran_s"] = 75.5;
    boost::json::array host_list, rank_list;
    for (int i = 0; i < hosts; ++i) {
        boost::json::object host;
        host["host"] = fmt::format("s{}", i + 1);
        host["state"] = "joined";
        host["load"] = 1.5;
        host["processors"] = 2;
        host["memory_bytes"] = 1 << 20;
        host["memory_total_bytes"] = 1 << 24;
        host_list.push_back(host);
        for (int j = 0; j < each; ++j) {
            boost::json::object rank;
            rank["rank"] = i * each + j;
            rank["host"] = host["host"];
            rank["state"] = "running";
            rank["step"] = 40;
            rank["steps_per_s"] = 9.5;
            rank["step_s"] = 0.1;
            rank["step_age_s"] = 0.05;
            rank_list.push_back(std::move(rank));
        }
    }
    view["hosts"] = std::move(host_list);
    view["ranks"] = std::move(rank_list);
    return view;
}

inline boost::json::object& rank(boost::json::object& view, std::size_t index) {
    return view.at("ranks").at(index).as_object();
}

inline boost::json::object& host(boost::json::object& view, std::size_t index) {
    return view.at("hosts").at(index).as_object();
}

inline boost::json::array gpus(std::string_view text) {
    return boost::json::parse({text.data(), text.size()}).as_array();
}

}  // namespace dtrun::watch
