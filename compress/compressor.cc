#include "gradwire/compressor.h"

namespace gradwire {

RoundKind Compressor::round_kind(int, DType dtype, int) const {
  const Traits claims = traits();
  const bool own_type = claims.payload_dtype == DType::kF32;
  return {claims.exchange, own_type ? dtype : claims.payload_dtype, claims.fixed_payload};
}

}  // namespace gradwire
