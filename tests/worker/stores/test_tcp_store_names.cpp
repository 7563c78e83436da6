#include "tests/support/catch.h"
#include "worker/stores/tcp_store_names.h"

namespace dtrun {

using namespace stores;
namespace {

TEST_CASE("the default group's keys of every torch tell a rank, others do not", "[torch]") {
    CHECK(torch_init_rank("//worker/attempt_0/default_pg/0/0/rank_3") == 3u);
    CHECK(torch_init_rank("//worker/attempt_12/default_pg/0/0/3") == 3u);
    CHECK(torch_init_rank("/default_pg/0/0/11") == 11u);
    CHECK(torch_init_rank("/default_pg/0//cpu//0/2") == 2u);
    CHECK(torch_init_rank("/default_pg/0//cuda//0/rank_2") == 2u);
    for (const char* other :
         {"", "/", "init/", "/mine/0/0/3", "/default_pg/1/0/3", "/default_pg/0//1//cpu//0/3",
          "/default_pg/0//cpu//0/", "/default_pg/0//cpu//0/rank_", "/default_pg/0//cpu//0/3/x",
          "/default_pg/0//cpu//0/-3", "/default_pg/0//cpu//1/3", "/default_pg/0//cuda//0",
          "/default_pg/0//cpu:0//0/3", "/default_pg/0/SEQ_NUM_STORE_KEY", "/default_pg/0//0/3",
          "/default_pg/store_based_barrier_key:1", "//worker/attempt_/default_pg/0/0/3",
          "/default_pg/0/0/99999999999999999999", "/x/default_pg/0/0/3"}) {
        CAPTURE(other);
        CHECK_FALSE(torch_init_rank(other));
    }
}

TEST_CASE("a key is shown as the program wrote it", "[torch]") {
    CHECK(shown_torch_key("/mine") == "mine");
    CHECK(shown_torch_key("init/") == "init/");
    CHECK(shown_torch_key("//worker/attempt_0/default_pg/0/0/1") == "default_pg/0/0/1");
    CHECK(shown_torch_key("//twice") == "/twice");
    CHECK(shown_torch_key("/a\nb\x1b[31m") == "a?b?[31m");
    CHECK(shown_torch_key("/" + std::string(1'000, 'x')) == std::string(200, 'x') + "...");
}

}  // namespace
}  // namespace dtrun
