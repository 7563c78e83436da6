#include "lab/report/fit.h"
#include "tests/lab/lab_support.h"
#include "tests/support/catch.h"

using namespace dtrun;
using namespace dtrun::lab;

namespace {

/// Rows whose times lie on a line, but for a share that alternates.
LabReport line_report(double latency_us, double bytes_per_us, double noise = 0) {
    LabReport report;
    double sign = 1;
    for (std::uint64_t bytes = 4; bytes <= 1u << 24; bytes *= 16) {
        const double time = latency_us + static_cast<double>(bytes) / bytes_per_us;
        report.rows.push_back(row_record("gloo", 2, 1, bytes, time * (1 + sign * noise)));
        sign = -sign;
    }
    return report;
}

}  // namespace

TEST_CASE("latency and bandwidth are found again in times that they make", "[lab]") {
    const auto fits = fit_costs(line_report(50, 100));
    REQUIRE(fits.size() == 1);
    CHECK(fits[0].latency_us == Approx(50));
    CHECK(fits[0].bandwidth_GBps == Approx(0.1));  // 2 ranks: bus bandwidth is that of the array
    CHECK(fits[0].half_bytes == Approx(5'000));
    CHECK(fits[0].error == Approx(0).margin(1e-6));
    const auto noisy = fit_costs(line_report(50, 100, 0.05));
    CHECK(noisy[0].latency_us == Approx(50).epsilon(0.05));
    CHECK(noisy[0].bandwidth_GBps == Approx(0.1).epsilon(0.05));
    CHECK(noisy[0].error == Approx(0.05).epsilon(0.2));
}

TEST_CASE("there is no line where there is nothing to fit", "[lab]") {
    LabReport report = line_report(50, 100);
    report.rows.resize(2);
    CHECK(fit_costs(report).empty());
    report = line_report(50, 100);
    for (RowRecord& row : report.rows) row.compression = "int8";
    CHECK(fit_costs(report).empty());
    report = line_report(50, 100);
    for (RowRecord& row : report.rows) row.in_place = true;
    CHECK(fit_costs(report).empty());
    report = line_report(50, 100);
    for (RowRecord& row : report.rows) row.t_p50_us = kUnknown;
    CHECK(fit_table(report).empty());
    // Times in proportion to sizes have no latency, and never a negative one.
    report = line_report(0, 100);
    report.rows[0].t_p50_us /= 2;
    CHECK(fit_costs(report)[0].latency_us == 0);
}
