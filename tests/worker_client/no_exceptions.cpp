// <dtrun/worker.h> in a program that is built without exceptions: run as a rank, ends with 0 if all is right.

#include <dtrun/worker.h>

#include <cstdio>

int main() {
    auto made = dtrun::Worker::make();
    if (!made) {
        std::fprintf(stderr, "%s\n", made.error().what());
        return 1;
    }
    dtrun::Worker worker = std::move(*made);
    if (!worker.set("key", "value")) return 2;
    const auto value = worker.get("key");
    if (!value || *value != "value") return 3;
    const auto missing = worker.find("none");
    if (!missing || *missing) return 4;
    const auto late = worker.get("none", std::chrono::milliseconds(10));
    if (late || !late.error().is(DTRUN_TIMED_OUT)) return 5;
    std::string answered;
    const auto submitted = worker.submit({DTRUN_OP_GET, {"key"}}, [&](const dtrun::Answer& answer) {
        answered = answer.value.value_or("");
    });
    if (!submitted) return 6;
    const auto count = worker.poll(dtrun::forever);
    if (!count || *count != 1 || answered != "value") return 7;
    worker.finalize();
    const auto after = worker.set("key", "value");
    return !after && after.error().is(DTRUN_INVALID) ? 0 : 8;
}
