// fmt compiled once, as its own library would have it: Debian has no static one for the agent, and
// header-only in every file it is half of our compile time.

#include <fmt/core.h>
#if FMT_VERSION < 110000
// Nobody here writes "{:L}", which asks a C++ locale for the sign between thousands. A locale brings its whole library with it,
// from dates to money, into the agent and into what ranks load. Nothing that they are made of has streams, for the same reason.
#define FMT_STATIC_THOUSANDS_SEPARATOR ','
#endif
#include <fmt/format-inl.h>

FMT_BEGIN_NAMESPACE
namespace detail {

template FMT_API auto dragonbox::to_decimal(float x) noexcept -> dragonbox::decimal_fp<float>;
template FMT_API auto dragonbox::to_decimal(double x) noexcept -> dragonbox::decimal_fp<double>;
#ifndef FMT_STATIC_THOUSANDS_SEPARATOR
template FMT_API locale_ref::locale_ref(const std::locale& loc);
template FMT_API auto locale_ref::get<std::locale>() const -> std::locale;
#endif
template FMT_API auto thousands_sep_impl(locale_ref) -> thousands_sep_result<char>;
template FMT_API auto decimal_point_impl(locale_ref) -> char;
template FMT_API void buffer<char>::append(const char*, const char*);
#if FMT_VERSION < 110000  // later an ordinary function
template FMT_API void vformat_to(buffer<char>&, string_view, format_args, locale_ref);
#endif

}  // namespace detail
FMT_END_NAMESPACE
