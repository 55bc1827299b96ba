"""What PyTorch calls the arguments of each function that has other names for them here, or not all of them: its name, then
the names in order, for each way to call it. A line that begins with a blank goes on with the one before. ALIKE are functions
written in Python whose names are PyTorch's: they get ``out=``. Written by tests/torch_signatures.py; do not edit."""

SIGNATURES = """
Generator device seed
Size sizes
acos input out | a
acosh input out | a
addcdiv input tensor1 tensor2 value out
addcmul input tensor1 tensor2 value out
addmm input mat1 mat2 out_dtype beta alpha out
all input dim keepdim out
allclose input other rtol atol equal_nan
angle input out | a
any input dim keepdim out
argmax input dim keepdim out
argmin input dim keepdim out
as_strided input size stride storage_offset
as_tensor t dtype device | data dtype device
asarray obj dtype device copy requires_grad
asin input out | a
asinh input out | a
atan input out | a
atanh input out | a
atleast_1d input | tensors
atleast_2d input | tensors
atleast_3d input | tensors
backward tensors grad_tensors retain_graph create_graph | input gradient retain_graph create_graph inputs
baddbmm input batch1 batch2 out_dtype beta alpha out
batch_norm input weight bias running_mean running_var training momentum eps cudnn_enabled
batch_norm_backward grad_out input weight running_mean running_var save_mean save_var update eps output_mask reserve
bernoulli input p generator out
bmm input mat2 out_dtype out | input batch2
broadcast_shapes a b | shapes
broadcast_tensors tensors
can_cast from_ to
cauchy input median sigma generator out
cdist x1 x2 p compute_mode
chain_matmul matrices out
cholesky_inverse input upper out | L upper out
cholesky_solve input input2 upper out | B L upper out
clamp input min max out
clamp_max input max out
clamp_min input min out
clip input min max out
clone input memory_format out
compile model fullgraph dynamic backend mode options name disable recompile_limit isolate_recompiles dynamic_shapes
concat tensors dim out
concatenate tensors dim out | tensors axis out
conj input
convolution input weight bias stride padding dilation transposed output_padding groups out
cos input out | a
cosh input out | a
cumprod input dim dtype out
cumsum input dim dtype out
data input
diagonal_backward grad_output input_sizes offset dim1 dim2 out
div input other rounding_mode out | a b | input value rounding_mode
divide input other rounding_mode out | input value rounding_mode
dot input tensor out | input other
dropout input p train
einsum equation operands
elu input alpha scale input_scale out
elu_backward grad_output alpha scale input_scale is_result self_or_result out
embedding weight indices padding_idx scale_grad_by_freq sparse out
embedding_backward grad indices num_weights padding_idx scale_grad_by_freq sparse
embedding_bag weight indices offsets scale_grad_by_freq mode sparse per_sample_weights include_last_offset padding_idx
empty size memory_format out | size out dtype layout device requires_grad pin_memory memory_format
exp input out | a
expand input size implicit
expand_as input other
exponential input lambd generator out
flip input dims out
floor_divide input other out | input value
fmod input other out | a b | input divisor
from_dlpack ext_tensor device copy
from_numpy ndarray
frombuffer buffer dtype count offset requires_grad
full shape fill_value dtype device requires_grad | size fill_value dtype layout device pin_memory | size fill_value out
 dtype layout device requires_grad
gelu_backward grad_output input approximate out
geometric input p generator out
grad outputs inputs grad_outputs retain_graph create_graph allow_unused
group_norm input num_groups weight bias eps cudnn_enabled
hardswish_backward grad_output input out
hardtanh input min_val max_val out
hardtanh_backward grad_output input min_val max_val out
hsplit input sections | input indices | input indices_or_sections | input split_size_or_sections
index input indices out | input el | input positions dims
index_copy input dim index source out | input dim index tensor2
initial_seed input
is_floating_point input
is_leaf input
is_pinned input device
isfinite input | a
isin elements test_elements assume_unique invert out | elements test_element assume_unique invert out
isinf input out | a
isnan input out | a
layer_norm input normalized_shape weight bias eps cudnn_enable
leaky_relu_backward grad_output input negative_slope self_is_result out
lerp input end weight out
linalg_cond input p out
linalg_diagonal A offset dim1 dim2
linalg_lstsq input b rcond driver out
linalg_matmul input other out
linalg_matrix_norm input ord dim keepdim dtype out
linalg_matrix_rank input atol rtol hermitian out | input tol hermitian out
linalg_norm input ord dim keepdim dtype out
linalg_pinv input atol rtol hermitian out | input rcond hermitian out
linalg_solve_triangular input B upper left unitriangular out
linalg_tensorsolve input other dims out
linalg_vector_norm input ord dim keepdim dtype out
load f map_location pickle_module weights_only mmap pickle_load_args
log input out | a b
log10 input out | a
mH input
mT input
manual_seed input seed
masked_scatter input mask source out | input mask tensor
matmul input other out | input tensor2
matrix_exp input | A
max input dim keepdim out | input other out
meshgrid tensors indexing
min input dim keepdim out | input other out
mish_backward grad_output input
mm input mat2 out_dtype out
mul input other out | l n | a b | input value
multinomial input num_samples replacement generator out
multiply input other out | input value
mv input vec out
narrow input dim start length | input dimension start length
neg input out | a
new_empty input size dtype layout device pin_memory | input size out | input size dtype device requires_grad layout
 pin_memory
new_full input size fill_value dtype layout device pin_memory | input size fill_value out | input size fill_value dtype
 device requires_grad layout pin_memory
new_ones input size dtype layout device pin_memory | input size out | input size dtype device requires_grad layout
 pin_memory
new_tensor input data dtype device requires_grad layout pin_memory
new_zeros input size dtype layout device pin_memory | input size out | input size dtype device requires_grad layout
 pin_memory
norm input p dim keepdim dtype out | input p dim keepdim out dtype
normal input mean std generator out | mean std size generator out dtype layout device requires_grad pin_memory
numel input
ones size dtype layout device pin_memory | size out dtype layout device requires_grad
outer input vec2 out
pin_memory input device
poisson input generator out
polygamma n input out | input n
positive input
pow input other | input exponent out | a b | self exponent out
prod input dim keepdim dtype out
rand size generator out dtype layout device requires_grad pin_memory
rand_like input generator dtype layout device pin_memory memory_format | input generator memory_format out | input
 generator dtype layout device requires_grad memory_format
randint low high size generator dtype layout device pin_memory | low high size generator out dtype layout device
 requires_grad
randint_like input low high generator dtype layout device pin_memory memory_format | input low high generator
 memory_format out | input low high generator dtype layout device requires_grad memory_format
randn size generator out dtype layout device requires_grad pin_memory
randn_like input generator dtype layout device pin_memory memory_format | input generator memory_format out | input
 generator dtype layout device requires_grad memory_format
random input from to generator out
randperm n generator out dtype layout device requires_grad pin_memory
real input
record_stream input s | input stream
remainder input other out | a b | input divisor
repeat input repeats out
repeat_interleave input repeats dim output_size | repeats output_size out
reshape input shape
reshape_as input other
resize input size memory_format out | input sizes
resize_as input the_template memory_format out | input tensor
result_type tensor other | tensor1 tensor2
roll input shifts dims out
save obj f pickle_module pickle_protocol _use_new_zipfile_serialization _disable_byteorder_record
scaled_dot_product_attention query key value attn_mask dropout_p is_causal scale enable_gqa
searchsorted sorted_sequence input out_int32 right side sorter out | sorted_sequence values out_int32 right side out
 sorter
seed input
select input dim index | list idx
select_backward grad_output input_sizes dim index out
set_default_dtype d
set_default_tensor_type t
set_grad_enabled val
set_num_threads int
shape input
sigmoid_backward grad_output output out
silu_backward grad_output input out
sin input out | a
sinh input out | a
slice input dim start end step | l start end step
slice_backward grad_output input_sizes dim start end step out
softplus_backward grad_output input beta threshold out
sort input stable dim descending out | input reverse | input dim descending stable out
split input split_size dim | input split_sizes dim | tensor split_size_or_sections dim
split_with_sizes input split_sizes dim
sqrt input out | a
std_mean input dim unbiased keepdim | input dim correction keepdim out
sum_to_size input size
svd input some compute_uv out
swapaxes input axis0 axis1
swapdims input dim0 dim1
take input index out | input indices
tan input out | a
tanh input out | a
tanh_backward grad_output output out
tensor t dtype device requires_grad | data dtype device requires_grad pin_memory
tensor_split input sections dim | input indices dim | input tensor_indices_or_sections dim | input indices_or_sections
 dim
tensordot input other dims_self dims_other out | a b dims out
tile input dims
to input device dtype non_blocking copy memory_format
transpose input dim0 dim1
tril input diagonal out
tril_indices row col offset dtype device layout
triu input diagonal out
triu_indices row col offset dtype device layout
true_divide input other out | dividend divisor out | input value
type_as input other | input tensor
unfold input dimension size step
unfold_backward grad_in input_sizes dim size step out
uniform input from to generator out
vander x N increasing
var_mean input dim unbiased keepdim | input dim correction keepdim out
view input size | input shape | input dtype
view_as input other
vsplit input sections | input indices | input indices_or_sections | input split_size_or_sections
zeros size dtype layout device pin_memory | size out dtype layout device requires_grad
"""
ALIKE = """
adjoint arange argsort argwhere as_subclass bartlett_window bfloat16 blackman_window bool byte cat char cholesky
conj_physical contiguous copy cpu cuda data_ptr det detach dim double element_size empty_like equal eye fill flatten
float full_like ger get_device half hamming_window hann_window hardshrink histogram index_put int inverse is_complex
is_conj is_contiguous is_inference is_nonzero is_same_size is_shared is_signed is_tensor item kaiser_window linalg_cross
linalg_solve linalg_vecdot linspace log_normal log_softmax logspace long masked_fill matrix_power mean median msort
nanmean nanmedian nansum ndimension nelement nonzero numpy one_hot ones_like pinverse prelu promote_types put ravel
register_hook register_post_accumulate_grad_hook resolve_conj resolve_neg retain_grad rsub scatter scatter_add
set_default_device set_float32_matmul_precision set_printoptions set_rng_state short size slogdet softmax
special_log_softmax special_softmax squeeze stack std storage storage_offset stride sum t tolist topk type unflatten
unique unique_consecutive unsafe_chunk unsqueeze untyped_storage use_deterministic_algorithms var vmap where zero
zeros_like
"""
LINES = SIGNATURES.replace("\n ", " ").strip().split("\n")
NAMES = frozenset([*(line.split(" ", 1)[0] for line in LINES), *ALIKE.split()])
