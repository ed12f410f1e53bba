// The matrix products that a model is made of: their arithmetic, parameters and sizes.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/accounts/layer_traffic.h"
#include "trainer/model.h"

namespace gradwire {

enum class ProductKind : std::uint8_t {
  kConvolution,
  kLinear,
  kAttention,  // of activations by activations, without weights
};
inline constexpr std::array kProductKinds{ProductKind::kConvolution, ProductKind::kLinear,
                                          ProductKind::kAttention};
std::string_view to_string(ProductKind kind);  // "convolutions", "linear layers", "attention"

struct ModelProduct {
  std::string name;  // "block1.mlp.fc", as its parameters are called
  ProductKind kind = ProductKind::kLinear;
  LayerSize size;                 // a tied layer's weights are those that it reads
  std::int64_t parameters = 0;    // with biases; 0 of a tied layer
  std::int64_t forward_macs = 0;  // multiplications with their additions of a sample
};

// Layers with products, those inside of blocks one by one, in the order of forward. Embeddings are
// no products.
std::vector<ModelProduct> model_products(const Model<float>& model);

// What a kind of product has of a model's arithmetic and parameters.
struct KindOfWork {
  ProductKind kind = ProductKind::kLinear;
  std::int64_t forward_macs = 0;
  std::int64_t parameters = 0;
  std::int64_t outputs = 0;  // elements of a sample: activations
};
// Of each kind that the model has, in the order of kProductKinds.
std::vector<KindOfWork> work_by_kind(const std::vector<ModelProduct>& products);

// Elements that ranks send in a step, before the factor (p - 1) / p.
struct ModelTraffic {
  std::int64_t data_parallel = 0;  // all gradients are averaged: twice the parameters
  // Each product by the division that sends least, and the gradients of all other parameters
  // averaged. An embedding that a product is tied to is divided with it, and what is looked up
  // there summed. What it takes to bring a tensor from one division to the next one's is not
  // counted.
  std::int64_t least = 0;
};
ModelTraffic model_traffic(const Model<float>& model, std::int64_t samples);

}  // namespace gradwire
