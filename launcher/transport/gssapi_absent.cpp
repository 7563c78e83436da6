// Distributions' libssh.a can log in by Kerberos, whose libraries are nowhere archives. Hosts that want it are ssh's, and
// dtrun never asks libssh for it: these are named there, and not called.
#include <cstdint>

namespace {

constexpr std::uint32_t kUnavailable = 16u << 16;  // GSS_S_UNAVAILABLE

}  // namespace

extern "C" {
std::uint32_t gss_accept_sec_context() {
    return kUnavailable;
}
std::uint32_t gss_acquire_cred() {
    return kUnavailable;
}
std::uint32_t gss_add_oid_set_member() {
    return kUnavailable;
}
std::uint32_t gss_create_empty_oid_set() {
    return kUnavailable;
}
std::uint32_t gss_display_name() {
    return kUnavailable;
}
std::uint32_t gss_display_status() {
    return kUnavailable;
}
std::uint32_t gss_get_mic() {
    return kUnavailable;
}
std::uint32_t gss_import_name() {
    return kUnavailable;
}
std::uint32_t gss_indicate_mechs() {
    return kUnavailable;
}
std::uint32_t gss_init_sec_context() {
    return kUnavailable;
}
std::uint32_t gss_inquire_cred() {
    return kUnavailable;
}
std::uint32_t gss_inquire_cred_by_mech() {
    return kUnavailable;
}
std::uint32_t gss_release_buffer() {
    return kUnavailable;
}
std::uint32_t gss_release_cred() {
    return kUnavailable;
}
std::uint32_t gss_release_name() {
    return kUnavailable;
}
std::uint32_t gss_release_oid_set() {
    return kUnavailable;
}
std::uint32_t gss_test_oid_set_member() {
    return kUnavailable;
}
std::uint32_t gss_verify_mic() {
    return kUnavailable;
}
const void* GSS_C_NT_HOSTBASED_SERVICE = nullptr;
const void* GSS_C_NT_USER_NAME = nullptr;
}
