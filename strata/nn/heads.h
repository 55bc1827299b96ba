#pragma once
// What stands on the vector of a text (text_embeddings()) where it is not continued: classes, and the losses that bring
// vectors of one meaning together.

#include "strata/nn/layers.h"

namespace strata::nn {

/// Scores of classes: a linear map behind dropout. Parameters: out.weight [classes, dim] and, with `bias`, out.bias.
///     const nn::ClassificationHead head(64, 3);
///     Tensor loss = nn::classification_loss(head(vectors), labels);  // vectors [B, 64], labels [B]
class ClassificationHead : public Module {
 public:
  /// Throws ValueError unless there are classes.
  ClassificationHead(int64_t dim, int64_t classes, bool bias = false, double dropout = 0);
  /// [.., dim] to [.., classes].
  Tensor forward(const Tensor& vectors) const { return out(dropout(vectors)); }
  Tensor operator()(const Tensor& vectors) const { return called(*this, vectors); }

  Linear out;
  Dropout dropout;
};

/// The loss of scores [B, classes] that goes with the targets: cross entropy for classes [B] (whole numbers; -100 is
/// left out), binary cross entropy for probabilities [B, classes], and for numbers [B] where there is one class the
/// squared error. A mean, in f32 for low precision. Throws ShapeError.
Tensor classification_loss(const Tensor& scores, const Tensor& targets);

/// That each of a [B, D] finds its own of b [N, D], N >= B, among all (InfoNCE, arXiv:1807.03748): the mean cross
/// entropy of a b^T / temperature, row i's class being i. Rows of b behind the B-th are wrong for all. Throws
/// ShapeError, ValueError unless temperature > 0.
Tensor contrastive_loss(const Tensor& a, const Tensor& b, double temperature = 0.05);

}  // namespace strata::nn
