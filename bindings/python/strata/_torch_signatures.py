"""What PyTorch calls the arguments of each function: its name, then the names in order, for each way to call it. A line
that begins with a blank goes on with the one before. Written by tests/torch_signatures.py; do not edit."""

SIGNATURES = """
Generator device seed
Size sizes
abs input out
absolute input out
acos input out | a
acosh input out | a
adaptive_avg_pool1d input output_size out
adaptive_avg_pool2d input output_size out
adaptive_avg_pool3d input output_size out
adaptive_max_pool1d input output_size
adaptive_max_pool2d input output_size out
adaptive_max_pool3d input output_size out
add input other alpha out | a b
addbmm input batch1 batch2 beta alpha out
addcdiv input tensor1 tensor2 value out
addcmul input tensor1 tensor2 value out
addmm input mat1 mat2 out_dtype beta alpha out
addmv input mat vec beta alpha out
addr input vec1 vec2 beta alpha out
adjoint input
all input dim keepdim out
allclose input other rtol atol equal_nan
amax input dim keepdim out
amin input dim keepdim out
aminmax input dim keepdim out
angle input out | a
any input dim keepdim out
arange start end step dtype layout device pin_memory | start end step out dtype layout device requires_grad
arccos input out
arccosh input out
arcsin input out
arcsinh input out
arctan input out
arctan2 input other out
arctanh input out
argmax input dim keepdim out
argmin input dim keepdim out
argsort input stable dim descending out | input dim descending stable
argwhere input
as_strided input size stride storage_offset
as_subclass input cls
as_tensor t dtype device | data dtype device
asarray obj dtype device copy requires_grad
asin input out | a
asinh input out | a
atan input out | a
atan2 input other out
atanh input out | a
atleast_1d input | tensors
atleast_2d input | tensors
atleast_3d input | tensors
avg_pool1d input kernel_size stride padding ceil_mode count_include_pad out
avg_pool2d input kernel_size stride padding ceil_mode count_include_pad divisor_override out
avg_pool3d input kernel_size stride padding ceil_mode count_include_pad divisor_override out
backward tensors grad_tensors retain_graph create_graph | input gradient retain_graph create_graph inputs
baddbmm input batch1 batch2 out_dtype beta alpha out
bartlett_window window_length periodic dtype layout device requires_grad
batch_norm input weight bias running_mean running_var training momentum eps cudnn_enabled
batch_norm_backward grad_out input weight running_mean running_var save_mean save_var update eps output_mask reserve
bernoulli input p generator out
bfloat16 input memory_format
binary_cross_entropy_with_logits input target weight pos_weight reduction out
bincount input weights minlength out
bitwise_and input other out
bitwise_left_shift input other out
bitwise_not input out
bitwise_or input other out
bitwise_right_shift input other out
bitwise_xor input other out
blackman_window window_length periodic dtype layout device requires_grad
block_diag tensors out
bmm input mat2 out_dtype out | input batch2
bool input memory_format
broadcast_shapes a b | shapes
broadcast_tensors tensors
broadcast_to input size | input shape
bucketize input boundaries out_int32 right out
byte input memory_format
can_cast from_ to
cartesian_prod tensors
cat tensors dim out
cauchy input median sigma generator out
cdist x1 x2 p compute_mode
ceil input out
chain_matmul matrices out
char input memory_format
cholesky input upper out
cholesky_inverse input upper out | L upper out
cholesky_solve input input2 upper out | B L upper out
chunk input chunks dim
clamp input min max out
clamp_max input max out
clamp_min input min out
clip input min max out
clone input memory_format out
column_stack tensors out
combinations input r with_replacement
compile model fullgraph dynamic backend mode options name disable recompile_limit isolate_recompiles dynamic_shapes
concat tensors dim out
concatenate tensors dim out | tensors axis out
conj input
conj_physical input out
contiguous input memory_format
conv1d input weight bias stride padding dilation groups
conv2d input weight bias stride padding dilation groups
conv3d input weight bias stride padding dilation groups
conv_transpose1d input weight bias stride padding output_padding groups dilation
conv_transpose2d input weight bias stride padding output_padding groups dilation
conv_transpose3d input weight bias stride padding output_padding groups dilation
convolution input weight bias stride padding dilation transposed output_padding groups out
copy input src non_blocking out
copysign input other out
corrcoef input
cos input out | a
cosh input out | a
cosine_similarity x1 x2 dim eps
count_nonzero input dim out
cov input correction fweights aweights
cpu input memory_format
cross input other dim out
ctc_loss log_probs targets input_lengths target_lengths blank reduction zero_infinity
cuda input device non_blocking memory_format
cummax input dim out
cummin input dim out
cumprod input dim dtype out
cumsum input dim dtype out
cumulative_trapezoid y x dx dim
data input
data_ptr input
deg2rad input out
det input
detach input
diag input diagonal out
diag_embed input offset dim1 dim2 out
diagflat input offset
diagonal input offset dim1 dim2
diagonal_backward grad_output input_sizes offset dim1 dim2 out
diagonal_scatter input src offset dim1 dim2 out
diff input n dim prepend append out
digamma input out
dim input
dist input other p out
div input other rounding_mode out | a b | input value rounding_mode
divide input other rounding_mode out | input value rounding_mode
dot input tensor out | input other
double input memory_format
dropout input p train
dstack tensors out
einsum equation operands
element_size input
elu input alpha scale input_scale out
elu_backward grad_output alpha scale input_scale is_result self_or_result out
embedding weight indices padding_idx scale_grad_by_freq sparse out
embedding_backward grad indices num_weights padding_idx scale_grad_by_freq sparse
embedding_bag weight indices offsets scale_grad_by_freq mode sparse per_sample_weights include_last_offset padding_idx
empty size memory_format out | size out dtype layout device requires_grad pin_memory memory_format
empty_like input dtype layout device pin_memory memory_format | input memory_format out | input dtype layout device
 requires_grad memory_format
eq input other out | a b
equal input other
erf input out
erfc input out
erfinv input out
exp input out | a
exp2 input out
expand input size implicit
expand_as input other
expm1 input out
exponential input lambd generator out
eye n m dtype layout device pin_memory | n m out dtype layout device requires_grad
fill input value out
fix input out
flatten input start_dim end_dim
flip input dims out
fliplr input
flipud input
float input memory_format
float_power input exponent out
floor input out
floor_divide input other out | input value
fmax input other out
fmin input other out
fmod input other out | a b | input divisor
frac input out
frexp input out
from_dlpack ext_tensor device copy
from_numpy ndarray
frombuffer buffer dtype count offset requires_grad
full shape fill_value dtype device requires_grad | size fill_value dtype layout device pin_memory | size fill_value out
 dtype layout device requires_grad
full_like input fill_value dtype layout device pin_memory memory_format | input fill_value memory_format out | input
 fill_value dtype layout device requires_grad memory_format
gather input dim index sparse_grad out
gcd input other out
ge input other out
gelu input approximate out
gelu_backward grad_output input approximate out
geometric input p generator out
ger input vec2 out
get_device input
grad outputs inputs grad_outputs retain_graph create_graph allow_unused
greater input other out
greater_equal input other out
group_norm input num_groups weight bias eps cudnn_enabled
gt input other out
half input memory_format
hamming_window window_length periodic alpha beta dtype layout device pin_memory requires_grad
hann_window window_length periodic dtype layout device requires_grad
hardshrink input lambd out
hardsigmoid input out
hardswish input out
hardswish_backward grad_output input out
hardtanh input min_val max_val out
hardtanh_backward grad_output input min_val max_val out
heaviside input values out
histc input bins min max out
histogram input bins range weight density out
hsplit input sections | input indices | input indices_or_sections | input split_size_or_sections
hstack tensors out
huber_loss input target reduction delta out
hypot input other out
i0 input out
index input indices out | input el | input positions dims
index_add input dim index source alpha out
index_copy input dim index source out | input dim index tensor2
index_fill input dim index value out
index_put input indices values accumulate out
index_select input dim index out
initial_seed input
inner input other out
int input memory_format
inverse input out
is_complex input
is_conj input
is_contiguous input memory_format
is_floating_point input
is_inference input
is_leaf input
is_nonzero input
is_pinned input device
is_same_size input other
is_shared input
is_signed input
is_tensor obj
isclose input other rtol atol equal_nan
isfinite input | a
isin elements test_elements assume_unique invert out | elements test_element assume_unique invert out
isinf input out | a
isnan input out | a
isneginf input out
isposinf input out
isreal input
item input
kaiser_window window_length periodic beta dtype layout device requires_grad
kl_div input target reduction log_target
kron input other out
kthvalue input k dim keepdim out
l1_loss input target reduction
layer_norm input normalized_shape weight bias eps cudnn_enable
lcm input other out
ldexp input other out
le input other out
leaky_relu input negative_slope out
leaky_relu_backward grad_output input negative_slope self_is_result out
lerp input end weight out
less input other out
less_equal input other out
lgamma input out
linalg_cholesky input upper out
linalg_cholesky_ex input upper check_errors out
linalg_cond input p out
linalg_cross input other dim out
linalg_det A out
linalg_diagonal A offset dim1 dim2
linalg_eigh input UPLO out
linalg_eigvalsh input UPLO out
linalg_inv A out
linalg_inv_ex A check_errors out
linalg_lstsq input b rcond driver out
linalg_matmul input other out
linalg_matrix_exp input out
linalg_matrix_norm input ord dim keepdim dtype out
linalg_matrix_power input n out
linalg_matrix_rank input atol rtol hermitian out | input tol hermitian out
linalg_multi_dot tensors out
linalg_norm input ord dim keepdim dtype out
linalg_pinv input atol rtol hermitian out | input rcond hermitian out
linalg_qr A mode out
linalg_slogdet A out
linalg_solve A B left out
linalg_solve_ex A B left check_errors out
linalg_solve_triangular input B upper left unitriangular out
linalg_svd A full_matrices driver out
linalg_svdvals A driver out
linalg_tensorinv input ind out
linalg_tensorsolve input other dims out
linalg_vander x N
linalg_vecdot x y dim out
linalg_vector_norm input ord dim keepdim dtype out
linear input weight bias out
linspace start end steps dtype layout device pin_memory | start end steps out dtype layout device requires_grad
load f map_location pickle_module weights_only mmap pickle_load_args
log input out | a b
log10 input out | a
log1p input out
log2 input out
log_normal input mean std generator out
log_softmax input dim dtype out
logaddexp input other out
logaddexp2 input other out
logcumsumexp input dim out
logdet input
logical_and input other out
logical_not input out
logical_or input other out
logical_xor input other out
logit input eps out
logspace start end steps base dtype layout device pin_memory | start end steps base out dtype layout device
 requires_grad
logsumexp input dim keepdim out
long input memory_format
lt input other out
mH input
mT input
manual_seed input seed
masked_fill input mask value out
masked_scatter input mask source out | input mask tensor
masked_select input mask out
matmul input other out | input tensor2
matrix_exp input | A
matrix_power input n out
max input dim keepdim out | input other out
max_pool1d input kernel_size stride padding dilation ceil_mode
max_pool2d input kernel_size stride padding dilation ceil_mode
max_pool3d input kernel_size stride padding dilation ceil_mode
maximum input other out
mean input dim keepdim dtype out
median input dim keepdim out
meshgrid tensors indexing
min input dim keepdim out | input other out
minimum input other out
mish input out
mish_backward grad_output input
mm input mat2 out_dtype out
mode input dim keepdim out
moveaxis input source destination
movedim input source destination
mse_loss input target reduction out
msort input out
mul input other out | l n | a b | input value
multinomial input num_samples replacement generator out
multiply input other out | input value
mv input vec out
mvlgamma input p out
nan_to_num input nan posinf neginf out
nanmean input dim keepdim dtype out
nanmedian input dim keepdim out
nanquantile input q dim keepdim interpolation out
nansum input dim keepdim dtype out
narrow input dim start length | input dimension start length
ndimension input
ne input other out | a b
neg input out | a
negative input out
nelement input
new_empty input size dtype layout device pin_memory | input size out | input size dtype device requires_grad layout
 pin_memory
new_full input size fill_value dtype layout device pin_memory | input size fill_value out | input size fill_value dtype
 device requires_grad layout pin_memory
new_ones input size dtype layout device pin_memory | input size out | input size dtype device requires_grad layout
 pin_memory
new_tensor input data dtype device requires_grad layout pin_memory
new_zeros input size dtype layout device pin_memory | input size out | input size dtype device requires_grad layout
 pin_memory
nextafter input other out
nll_loss input target weight reduction ignore_index out
nonzero input out as_tuple
norm input p dim keepdim dtype out | input p dim keepdim out dtype
normal input mean std generator out | mean std size generator out dtype layout device requires_grad pin_memory
not_equal input other out
numel input
numpy input force
one_hot input num_classes
ones size dtype layout device pin_memory | size out dtype layout device requires_grad
ones_like input dtype layout device pin_memory memory_format | input memory_format out | input dtype layout device
 requires_grad memory_format
outer input vec2 out
pad input pad mode value
permute input dims
pin_memory input device
pinverse input rcond
poisson input generator out
polygamma n input out | input n
positive input
pow input other | input exponent out | a b | self exponent out
prelu input weight
prod input dim keepdim dtype out
promote_types type1 type2
put input index source accumulate out
quantile input q dim keepdim interpolation out
rad2deg input out
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
ravel input
real input
reciprocal input out
record_stream input s | input stream
register_hook input hook
register_post_accumulate_grad_hook input hook
relu input out
relu6 input
remainder input other out | a b | input divisor
renorm input p dim maxnorm out
repeat input repeats out
repeat_interleave input repeats dim output_size | repeats output_size out
reshape input shape
reshape_as input other
resize input size memory_format out | input sizes
resize_as input the_template memory_format out | input tensor
resolve_conj input
resolve_neg input
result_type tensor other | tensor1 tensor2
retain_grad input
rms_norm input normalized_shape weight eps
roll input shifts dims out
rot90 input k dims out
round input decimals out
row_stack tensors out
rsqrt input out
rsub input other alpha out
save obj f pickle_module pickle_protocol _use_new_zipfile_serialization _disable_byteorder_record
scaled_dot_product_attention query key value attn_mask dropout_p is_causal scale enable_gqa
scatter input dim index src reduce out | input dim index value reduce out
scatter_add input dim index src out
scatter_reduce input dim index src reduce include_self out
searchsorted sorted_sequence input out_int32 right side sorter out | sorted_sequence values out_int32 right side out
 sorter
seed input
select input dim index | list idx
select_backward grad_output input_sizes dim index out
select_scatter input src dim index out
selu input
set_default_device device
set_default_dtype d
set_default_tensor_type t
set_float32_matmul_precision precision
set_grad_enabled val
set_num_threads int
set_printoptions precision threshold edgeitems linewidth profile sci_mode
set_rng_state new_state
sgn input out
shape input
short input memory_format
sigmoid input out
sigmoid_backward grad_output output out
sign input out
signbit input out
silu input out
silu_backward grad_output input out
sin input out | a
sinc input out
sinh input out | a
size input dim
slice input dim start end step | l start end step
slice_backward grad_output input_sizes dim start end step out
slice_scatter input src dim start end step out
slogdet input out
smooth_l1_loss input target reduction beta out
softmax input dim dtype out
softplus input beta threshold out
softplus_backward grad_output input beta threshold out
sort input stable dim descending out | input reverse | input dim descending stable out
special_bessel_j0 input out
special_bessel_j1 input out
special_digamma input out
special_entr input out
special_erf input out
special_erfc input out
special_erfcx input out
special_erfinv input out
special_exp2 input out
special_expit input out
special_expm1 input out
special_gammaln input out
special_i0 input out
special_i0e input out
special_i1 input out
special_i1e input out
special_log1p input out
special_log_ndtr input out
special_log_softmax input dim dtype
special_logit input eps out
special_logsumexp input dim keepdim out
special_modified_bessel_i0 input out
special_modified_bessel_i1 input out
special_multigammaln input p out
special_ndtr input out
special_ndtri input out
special_psi input out
special_round input decimals out
special_sinc input out
special_softmax input dim dtype
special_xlog1py input other out
special_xlogy input other out
special_zeta input other out
split input split_size dim | input split_sizes dim | tensor split_size_or_sections dim
split_with_sizes input split_sizes dim
sqrt input out | a
square input out
squeeze input dim
stack tensors dim out
std input dim correction keepdim out | input dim unbiased keepdim out
std_mean input dim unbiased keepdim | input dim correction keepdim out
storage input
storage_offset input
stride input dim
sub input other alpha out | a b
subtract input other alpha out
sum input dim keepdim dtype out
sum_to_size input size
svd input some compute_uv out
swapaxes input axis0 axis1
swapdims input dim0 dim1
t input
take input index out | input indices
take_along_dim input indices dim out
tan input out | a
tanh input out | a
tanh_backward grad_output output out
tensor t dtype device requires_grad | data dtype device requires_grad pin_memory
tensor_split input sections dim | input indices dim | input tensor_indices_or_sections dim | input indices_or_sections
 dim
tensordot input other dims_self dims_other out | a b dims out
tile input dims
to input device dtype non_blocking copy memory_format
tolist input
topk input k dim largest sorted out
trace input out
transpose input dim0 dim1
trapezoid y x dx dim
trapz y x dim | y dx dim
tril input diagonal out
tril_indices row col offset dtype device layout
triu input diagonal out
triu_indices row col offset dtype device layout
true_divide input other out | dividend divisor out | input value
trunc input out
type input dtype non_blocking
type_as input other | input tensor
unbind input dim
unflatten input dim sizes
unfold input dimension size step
unfold_backward grad_in input_sizes dim size step out
uniform input from to generator out
unique input sorted return_inverse return_counts dim
unique_consecutive input return_inverse return_counts dim out
unravel_index indices shape
unsafe_chunk input chunks dim
unsqueeze input dim
untyped_storage input
use_deterministic_algorithms mode warn_only
vander x N increasing
var input dim correction keepdim out | input dim unbiased keepdim out
var_mean input dim unbiased keepdim | input dim correction keepdim out
vdot input other out
view input size | input shape | input dtype
view_as input other
vmap func in_dims out_dims randomness chunk_size
vsplit input sections | input indices | input indices_or_sections | input split_size_or_sections
vstack tensors out
where condition input other out
xlogy input other out
zero input out
zeros size dtype layout device pin_memory | size out dtype layout device requires_grad
zeros_like input dtype layout device pin_memory memory_format | input memory_format out | input dtype layout device
 requires_grad memory_format
"""
LINES = SIGNATURES.replace("\n ", " ").strip().split("\n")
NAMES = frozenset(line.split(" ", 1)[0] for line in LINES)
