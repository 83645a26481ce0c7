"""Text and images to tensors to iterators of minibatches. Knows no model."""
