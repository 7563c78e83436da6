#include "collectives/types.h"

namespace dtrun::collectives {

std::string_view name_of(DType type) {
    switch (type) {
        case DType::f32:
            return "f32";
        case DType::f64:
            return "f64";
        case DType::f16:
            return "f16";
        case DType::bf16:
            return "bf16";
        case DType::i8:
            return "i8";
        case DType::u8:
            return "u8";
        case DType::i32:
            return "i32";
        case DType::i64:
            return "i64";
    }
    return "?";
}

std::string_view name_of(Reduce reduce) {
    switch (reduce) {
        case Reduce::sum:
            return "sum";
        case Reduce::product:
            return "product";
        case Reduce::min:
            return "min";
        case Reduce::max:
            return "max";
        case Reduce::average:
            return "average";
        case Reduce::adasum:
            return "adasum";
    }
    return "?";
}

}  // namespace dtrun::collectives
