// Written by tools/onnx_versions.py: what each version of an op takes. Do not edit.
#include "csrc/onnx/versions.h"

namespace ort {

// A line an op: its name, then for each version that takes something else than the one before
// opset:inputs:outputs:types:attributes, types in base 16 by the numbers of ONNX's dtypes.
const char* const kOnnxVersions = R"(
Abs 1:1:1:c02:consumed_inputs 6:1:1:3cfe: 13:1:1:13cfe:
Acos 7:1:1:c02: 22:1:1:10c02:
Acosh 9:1:1:c02: 22:1:1:10c02:
Add 1:2:1:c02:axis,broadcast,consumed_inputs 6:2:1:3cc2:axis,broadcast 7:2:1:3cc2: 13:2:1:13cc2: 14:2:1:13cfe:
AffineGrid 20:2:1:10c82:align_corners
And 1:2:1:200:axis,broadcast 7:2:1:200:
ArgMax 1:1:1:3cfe:axis,keepdims 12:1:1:3cfe:axis,keepdims,select_last_index 13:1:1:13cfe:axis,keepdims,select_last_index
ArgMin 1:1:1:3cfe:axis,keepdims 12:1:1:3cfe:axis,keepdims,select_last_index 13:1:1:13cfe:axis,keepdims,select_last_index
Asin 7:1:1:c02: 22:1:1:10c02:
Asinh 9:1:1:c02: 22:1:1:10c02:
Atan 7:1:1:c02: 22:1:1:10c02:
Atanh 9:1:1:c02: 22:1:1:10c02:
Attention 23:6:4:13efe:is_causal,kv_num_heads,q_num_heads,qk_matmul_output_mode,scale,softcap,softmax_precision 24:7:4:13efe:is_causal,kv_num_heads,q_num_heads,qk_matmul_output_mode,scale,softcap,softmax_precision 25:7:4:13efe:is_causal,kv_num_heads,left_window_size,q_num_heads,qk_matmul_output_mode,right_window_size,scale,softcap,softmax_precision
AveragePool 1:1:1:c02:auto_pad,kernel_shape,pads,strides 7:1:1:c02:auto_pad,count_include_pad,kernel_shape,pads,strides 10:1:1:c02:auto_pad,ceil_mode,count_include_pad,kernel_shape,pads,strides 19:1:1:c02:auto_pad,ceil_mode,count_include_pad,dilations,kernel_shape,pads,strides 22:1:1:10c02:auto_pad,ceil_mode,count_include_pad,dilations,kernel_shape,pads,strides
BatchNormalization 1:5:5:c02:consumed_inputs,epsilon,is_test,momentum,spatial 6:5:5:c02:epsilon,is_test,momentum,spatial 7:5:5:c02:epsilon,momentum,spatial 9:5:5:c02:epsilon,momentum 14:5:3:10c02:epsilon,momentum,training_mode
Bernoulli 15:1:1:13efe:dtype,seed
BitCast 26:1:1:7fffefe:to
BitShift 11:2:1:3014:direction 28:2:1:30fc:direction
BitwiseAnd 18:2:1:30fc:
BitwiseNot 18:1:1:30fc:
BitwiseOr 18:2:1:30fc:
BitwiseXor 18:2:1:30fc:
BlackmanWindow 17:1:1:13cfe:output_datatype,periodic
Cast 1:1:1:3efe:to 9:1:1:3ffe:to 13:1:1:13ffe:to 19:1:1:1f3ffe:saturate,to 21:1:1:7f3ffe:saturate,to 23:1:1:ff3ffe:saturate,to 24:1:1:1ff3ffe:round_mode,saturate,to 25:1:1:7ff3ffe:round_mode,saturate,to 28:1:1:1fff3ffe:round_mode,saturate,to
CastLike 15:2:1:13ffe: 19:2:1:1f3ffe:saturate 21:2:1:7f3ffe:saturate 23:2:1:ff3ffe:saturate 24:2:1:1ff3ffe:round_mode,saturate 25:2:1:7ff3ffe:round_mode,saturate
CausalConvWithState 27:4:2:10402:activation
Ceil 1:1:1:c02:consumed_inputs 6:1:1:c02: 13:1:1:10c02:
Celu 12:1:1:2:alpha 28:1:1:10c02:alpha
CenterCropPad 18:2:1:1fffe:axes
Clip 1:1:1:c02:consumed_inputs,max,min 6:1:1:c02:max,min 11:3:1:c02: 12:3:1:3cfe: 13:3:1:13cfe:
Col2Im 18:3:1:1fffe:dilations,pads,strides
Compress 9:2:1:fffe:axis 28:2:1:1fffe:axis
Concat 1:999:1:c02:axis 4:999:1:fffe:axis 13:999:1:1fffe:axis
ConcatFromSequence 11:1:1:200000000000fffe:axis,new_axis
Constant 1:0:1:c02:value 9:0:1:fffe:value 11:0:1:fffe:sparse_value,value 12:0:1:fffe:sparse_value,value,value_float,value_floats,value_int,value_ints,value_string,value_strings 13:0:1:1fffe:sparse_value,value,value_float,value_floats,value_int,value_ints,value_string,value_strings 19:0:1:1ffffe:sparse_value,value,value_float,value_floats,value_int,value_ints,value_string,value_strings 21:0:1:7ffffe:sparse_value,value,value_float,value_floats,value_int,value_ints,value_string,value_strings 23:0:1:fffffe:sparse_value,value,value_float,value_floats,value_int,value_ints,value_string,value_strings 24:0:1:1fffffe:sparse_value,value,value_float,value_floats,value_int,value_ints,value_string,value_strings 25:0:1:7fffffe:sparse_value,value,value_float,value_floats,value_int,value_ints,value_string,value_strings
ConstantOfShape 9:1:1:3efe:value 20:1:1:1f3efe:value 21:1:1:7f3efe:value 23:1:1:ff3efe:value 24:1:1:1ff3efe:value 25:1:1:7ff3efe:value
Conv 1:3:1:c02:auto_pad,dilations,group,kernel_shape,pads,strides 22:3:1:10c02:auto_pad,dilations,group,kernel_shape,pads,strides
ConvInteger 10:4:1:4c:auto_pad,dilations,group,kernel_shape,pads,strides
ConvTranspose 1:3:1:c02:auto_pad,dilations,group,kernel_shape,output_padding,output_shape,pads,strides 22:3:1:10c02:auto_pad,dilations,group,kernel_shape,output_padding,output_shape,pads,strides
Cos 7:1:1:c02: 22:1:1:10c02:
Cosh 9:1:1:c02: 22:1:1:10c02:
CumProd 26:2:1:13cc2:exclusive,reverse
CumSum 11:2:1:38c2:exclusive,reverse 14:2:1:13cc2:exclusive,reverse
DFT 17:2:1:10cc2:axis,inverse,onesided 20:3:1:10cc2:inverse,onesided
DeformConv 19:5:1:c02:dilations,group,kernel_shape,offset_group,pads,strides 22:5:1:10c02:dilations,group,kernel_shape,offset_group,pads,strides
DepthToSpace 1:1:1:fffe:blocksize 11:1:1:fffe:blocksize,mode 13:1:1:1fffe:blocksize,mode
DequantizeLinear 10:3:1:4e: 13:3:1:4e:axis 19:3:1:1f044e:axis 21:3:1:7f047e:axis,block_size 23:3:1:ff047e:axis,block_size,output_dtype 24:3:1:1ff047e:axis,block_size,output_dtype 25:3:1:7ff047e:axis,block_size,output_dtype 28:3:1:1fff047e:axis,block_size,output_dtype
Det 11:1:1:c02: 22:1:1:10c02:
Div 1:2:1:c02:axis,broadcast,consumed_inputs 6:2:1:3cc2:axis,broadcast 7:2:1:3cc2: 13:2:1:13cc2: 14:2:1:13cfe:
Dropout 1:1:2:c02:consumed_inputs,is_test,ratio 6:1:2:c02:is_test,ratio 7:1:2:c02:ratio 10:1:2:e02:ratio 12:3:2:e02:seed 13:3:2:10e02:seed 22:3:2:1f0e02:seed
DynamicQuantizeLinear 11:1:3:6:
Einsum 12:999:1:3cfe:equation 28:999:1:13cfe:equation
Elu 1:1:1:c02:alpha,consumed_inputs 6:1:1:c02:alpha 22:1:1:10c02:alpha
Equal 1:2:1:2c0:axis,broadcast 7:2:1:2c0: 11:2:1:3efe: 13:2:1:13efe: 19:2:1:13ffe:
Erf 9:1:1:3cfe: 13:1:1:10c02:
Exp 1:1:1:c02:consumed_inputs 6:1:1:c02: 13:1:1:10c02:
Expand 8:2:1:fffe: 13:2:1:1fffe:
EyeLike 9:1:1:3efe:dtype,k 22:1:1:13efe:dtype,k
Flatten 1:1:1:c02:axis 9:1:1:fffe:axis 13:1:1:1fffe:axis 21:1:1:7ffffe:axis 23:1:1:fffffe:axis 24:1:1:1fffffe:axis 25:1:1:7fffffe:axis
Floor 1:1:1:c02:consumed_inputs 6:1:1:c02: 13:1:1:10c02:
GRU 1:6:2:c42:activation_alpha,activation_beta,activations,clip,direction,hidden_size,output_sequence 3:6:2:c42:activation_alpha,activation_beta,activations,clip,direction,hidden_size,linear_before_reset,output_sequence 7:6:2:c42:activation_alpha,activation_beta,activations,clip,direction,hidden_size,linear_before_reset 14:6:2:c42:activation_alpha,activation_beta,activations,clip,direction,hidden_size,layout,linear_before_reset 22:6:2:10c42:activation_alpha,activation_beta,activations,clip,direction,hidden_size,layout,linear_before_reset
Gather 1:2:1:fffe:axis 13:2:1:1fffe:axis
GatherElements 11:2:1:fffe:axis 13:2:1:1fffe:axis
GatherND 11:2:1:fffe: 12:2:1:fffe:batch_dims 13:2:1:1fffe:batch_dims
Gelu 20:1:1:10c02:approximate
Gemm 1:3:1:c02:alpha,beta,broadcast,transA,transB 7:3:1:c02:alpha,beta,transA,transB 9:3:1:3cc2:alpha,beta,transA,transB 13:3:1:13cc2:alpha,beta,transA,transB
GlobalAveragePool 1:1:1:c02: 22:1:1:10c02:
GlobalLpPool 1:1:1:c02:p 22:1:1:10c02:p
GlobalMaxPool 1:1:1:c02: 22:1:1:10c02:
Greater 1:2:1:e02:axis,broadcast 7:2:1:e02: 9:2:1:3efe: 13:2:1:13efe:
GreaterOrEqual 12:2:1:3efe: 16:2:1:13efe:
GridSample 16:2:1:fffe:align_corners,mode,padding_mode 22:2:1:1fffe:align_corners,mode,padding_mode
GroupNormalization 21:3:1:10c02:epsilon,num_groups,stash_type
HammingWindow 17:1:1:13cfe:output_datatype,periodic
HannWindow 17:1:1:13cfe:output_datatype,periodic
HardSigmoid 1:1:1:c02:alpha,beta,consumed_inputs 6:1:1:c02:alpha,beta 22:1:1:10c02:alpha,beta
HardSwish 14:1:1:c02: 22:1:1:10c02:
Hardmax 1:1:1:c02:axis 13:1:1:10c02:axis
Identity 1:1:1:fffe: 13:1:1:1fffe: 14:1:1:200000000001fffe: 16:1:1:600000000001fffe: 19:1:1:60000000001ffffe: 21:1:1:60000000007ffffe: 23:1:1:6000000000fffffe: 24:1:1:6000000001fffffe: 25:1:1:6000000007fffffe:
If 1:1:999:fffe:else_branch,then_branch 13:1:999:200000000000fffe:else_branch,then_branch 16:1:999:600000000001fffe:else_branch,then_branch 19:1:999:60000000001ffffe:else_branch,then_branch 21:1:999:60000000007ffffe:else_branch,then_branch 23:1:999:6000000000fffffe:else_branch,then_branch 24:1:999:6000000001fffffe:else_branch,then_branch 25:1:999:6000000007fffffe:else_branch,then_branch
InstanceNormalization 1:3:1:c02:consumed_inputs,epsilon 6:3:1:c02:epsilon 22:3:1:10c02:epsilon
IsInf 10:1:1:a02:detect_negative,detect_positive 20:1:1:1f0e02:detect_negative,detect_positive
IsNaN 9:1:1:e02: 13:1:1:10e02: 20:1:1:1f0e02:
LRN 1:1:1:c02:alpha,beta,bias,size 13:1:1:10c02:alpha,beta,bias,size
LSTM 1:8:3:c42:activation_alpha,activation_beta,activations,clip,direction,hidden_size,input_forget,output_sequence 7:8:3:c42:activation_alpha,activation_beta,activations,clip,direction,hidden_size,input_forget 14:8:3:c42:activation_alpha,activation_beta,activations,clip,direction,hidden_size,input_forget,layout 22:8:3:10c42:activation_alpha,activation_beta,activations,clip,direction,hidden_size,input_forget,layout
LayerNormalization 17:3:3:10c02:axis,epsilon,stash_type
LeakyRelu 1:1:1:c02:alpha,consumed_inputs 6:1:1:c02:alpha 16:1:1:10c02:alpha
Less 1:2:1:e02:axis,broadcast 7:2:1:e02: 9:2:1:3efe: 13:2:1:13efe:
LessOrEqual 12:2:1:3efe: 16:2:1:13efe:
LinearAttention 27:6:2:10402:chunk_size,kv_num_heads,q_num_heads,scale,update_rule
Log 1:1:1:c02:consumed_inputs 6:1:1:c02: 13:1:1:10c02:
LogSoftmax 1:1:1:c02:axis 13:1:1:10c02:axis
Loop 1:999:999:fffe:body 13:999:999:200000000000fffe:body 16:999:999:600000000001fffe:body 19:999:999:60000000001ffffe:body 21:999:999:60000000007ffffe:body 23:999:999:6000000000fffffe:body 24:999:999:6000000001fffffe:body 25:999:999:6000000007fffffe:body
LpNormalization 1:1:1:c02:axis,p 22:1:1:10c02:axis,p
LpPool 1:1:1:c02:auto_pad,kernel_shape,p,pads,strides 18:1:1:c02:auto_pad,ceil_mode,dilations,kernel_shape,p,pads,strides 22:1:1:10c02:auto_pad,ceil_mode,dilations,kernel_shape,p,pads,strides
MatMul 1:2:1:c02: 9:2:1:3cc2: 13:2:1:13cc2:
MatMulInteger 10:4:1:4c:
Max 1:999:1:c02:consumed_inputs 6:999:1:c02: 12:999:1:3cfe: 13:999:1:13cfe:
MaxPool 1:1:1:c02:auto_pad,kernel_shape,pads,strides 8:1:2:c82:auto_pad,kernel_shape,pads,storage_order,strides 10:1:2:c82:auto_pad,ceil_mode,dilations,kernel_shape,pads,storage_order,strides 12:1:2:c8e:auto_pad,ceil_mode,dilations,kernel_shape,pads,storage_order,strides 22:1:2:10c8e:auto_pad,ceil_mode,dilations,kernel_shape,pads,storage_order,strides
MaxRoiPool 1:2:1:c02:pooled_shape,spatial_scale 22:2:1:10c02:pooled_shape,spatial_scale
MaxUnpool 9:3:1:c82:kernel_shape,pads,strides 22:3:1:10c82:kernel_shape,pads,strides
Mean 1:999:1:c02:consumed_inputs 6:999:1:c02: 13:999:1:10c02:
MeanVarianceNormalization 9:1:1:c02:axes 13:1:1:10c02:axes
MelWeightMatrix 17:5:1:13cfe:output_datatype
Min 1:999:1:c02:consumed_inputs 6:999:1:c02: 12:999:1:3cfe: 13:999:1:13cfe:
Mish 18:1:1:c02: 22:1:1:10c02:
Mod 10:2:1:3cfe:fmod 13:2:1:13cfe:fmod
Mul 1:2:1:c02:axis,broadcast,consumed_inputs 6:2:1:3cc2:axis,broadcast 7:2:1:3cc2: 13:2:1:13cc2: 14:2:1:13cfe:
Multinomial 7:1:1:cc2:dtype,sample_size,seed 22:1:1:10cc2:dtype,sample_size,seed
Neg 1:1:1:c02:consumed_inputs 6:1:1:cea: 13:1:1:10cea:
NegativeLogLikelihoodLoss 12:3:1:cc2:ignore_index,reduction 22:3:1:10cc2:ignore_index,reduction
NonMaxSuppression 10:5:1:82:center_point_box
NonZero 9:1:1:fffe: 13:1:1:1fffe:
Not 1:1:1:200:
OneHot 9:3:1:fffe:axis 28:3:1:1fffe:axis
Optional 15:1:1:600000000000fffe:type 28:1:1:600000001ffffffe:type
OptionalGetElement 15:1:1:600000000000fffe: 28:1:1:600000001ffffffe:
OptionalHasElement 15:1:1:4000000000000200: 18:1:1:600000000000fffe: 28:1:1:600000001ffffffe:
Or 1:2:1:200:axis,broadcast 7:2:1:200:
PRelu 1:2:1:c02:consumed_inputs 6:2:1:c02: 9:2:1:3cc2: 16:2:1:13cc2:
Pad 1:1:1:c02:mode,paddings,value 2:1:1:c02:mode,pads,value 11:3:1:3cfe:mode 13:3:1:1fffe:mode 18:4:1:1fffe:mode 21:4:1:7ffffe:mode 23:4:1:fffffe:mode 24:4:1:1fffffe:mode 25:4:1:7fffffe:mode
Pow 1:2:1:c02:axis,broadcast 7:2:1:c02: 12:2:1:3cfe: 13:2:1:13cfe:
QLinearConv 10:9:1:4e:auto_pad,dilations,group,kernel_shape,pads,strides
QLinearMatMul 10:8:1:e: 21:8:1:1f040e:
QuantizeLinear 10:3:1:4e: 13:3:1:4e:axis 19:3:1:1f044e:axis,saturate 21:3:1:7f047e:axis,block_size,output_dtype,saturate 23:3:1:ff047e:axis,block_size,output_dtype,precision,saturate 24:3:1:1ff047e:axis,block_size,output_dtype,precision,saturate 25:3:1:7ff047e:axis,block_size,output_dtype,precision,saturate 28:3:1:1fff047e:axis,block_size,output_dtype,precision,saturate
RMSNormalization 23:2:1:10c02:axis,epsilon,stash_type
RNN 1:6:2:c42:activation_alpha,activation_beta,activations,clip,direction,hidden_size,output_sequence 7:6:2:c42:activation_alpha,activation_beta,activations,clip,direction,hidden_size 14:6:2:c42:activation_alpha,activation_beta,activations,clip,direction,hidden_size,layout 22:6:2:10c42:activation_alpha,activation_beta,activations,clip,direction,hidden_size,layout
RandomNormal 1:0:1:c02:dtype,mean,scale,seed,shape 22:0:1:10c02:dtype,mean,scale,seed,shape
RandomNormalLike 1:1:1:fffe:dtype,mean,scale,seed 22:1:1:1fffe:dtype,mean,scale,seed
RandomUniform 1:0:1:c02:dtype,high,low,seed,shape 22:0:1:10c02:dtype,high,low,seed,shape
RandomUniformLike 1:1:1:fffe:dtype,high,low,seed 22:1:1:1fffe:dtype,high,low,seed
Range 11:3:1:8e2: 27:3:1:10ce2:stash_type
Reciprocal 1:1:1:c02:consumed_inputs 6:1:1:c02: 13:1:1:10c02:
ReduceL1 1:1:1:3cc2:axes,keepdims 13:1:1:13cc2:axes,keepdims 18:2:1:13cc2:keepdims,noop_with_empty_axes
ReduceL2 1:1:1:3cc2:axes,keepdims 13:1:1:13cc2:axes,keepdims 18:2:1:13cc2:keepdims,noop_with_empty_axes
ReduceLogSum 1:1:1:3cc2:axes,keepdims 13:1:1:13cc2:axes,keepdims 18:2:1:13cc2:keepdims,noop_with_empty_axes 28:2:1:10c82:keepdims,noop_with_empty_axes
ReduceLogSumExp 1:1:1:3cc2:axes,keepdims 13:1:1:13cc2:axes,keepdims 18:2:1:13cc2:keepdims,noop_with_empty_axes 28:2:1:10c82:keepdims,noop_with_empty_axes
ReduceMax 1:1:1:3cc2:axes,keepdims 12:1:1:3cce:axes,keepdims 13:1:1:13cce:axes,keepdims 18:2:1:13cce:keepdims,noop_with_empty_axes 20:2:1:13ece:keepdims,noop_with_empty_axes
ReduceMean 1:1:1:3cc2:axes,keepdims 13:1:1:13cc2:axes,keepdims 18:2:1:13cc2:keepdims,noop_with_empty_axes
ReduceMin 1:1:1:3cc2:axes,keepdims 12:1:1:3cce:axes,keepdims 13:1:1:13cce:axes,keepdims 18:2:1:13cce:keepdims,noop_with_empty_axes 20:2:1:13ece:keepdims,noop_with_empty_axes
ReduceProd 1:1:1:3cc2:axes,keepdims 13:1:1:13cc2:axes,keepdims 18:2:1:13cc2:keepdims,noop_with_empty_axes
ReduceSum 1:1:1:3cc2:axes,keepdims 13:2:1:13cc2:keepdims,noop_with_empty_axes
ReduceSumSquare 1:1:1:3cc2:axes,keepdims 13:1:1:13cc2:axes,keepdims 18:2:1:13cc2:keepdims,noop_with_empty_axes
RegexFullMatch 20:1:1:300:pattern
Relu 1:1:1:c02:consumed_inputs 6:1:1:c02: 13:1:1:10c02: 14:1:1:10cea:
Reshape 1:1:1:c02:consumed_inputs,shape 5:2:1:fffe: 13:2:1:1fffe: 14:2:1:1fffe:allowzero 19:2:1:1ffffe:allowzero 21:2:1:7ffffe:allowzero 23:2:1:fffffe:allowzero 24:2:1:1fffffe:allowzero 25:2:1:7fffffe:allowzero
Resize 10:2:1:fffe:mode 11:4:1:fffe:coordinate_transformation_mode,cubic_coeff_a,exclude_outside,extrapolation_value,mode,nearest_mode 13:4:1:1fffe:coordinate_transformation_mode,cubic_coeff_a,exclude_outside,extrapolation_value,mode,nearest_mode 18:4:1:1fffe:antialias,axes,coordinate_transformation_mode,cubic_coeff_a,exclude_outside,extrapolation_value,keep_aspect_ratio_policy,mode,nearest_mode
ReverseSequence 10:2:1:fffe:batch_axis,time_axis 28:2:1:1fffe:batch_axis,time_axis
RoiAlign 10:3:1:c82:mode,output_height,output_width,sampling_ratio,spatial_scale 16:3:1:c82:coordinate_transformation_mode,mode,output_height,output_width,sampling_ratio,spatial_scale 22:3:1:10c82:coordinate_transformation_mode,mode,output_height,output_width,sampling_ratio,spatial_scale
RotaryEmbedding 23:4:1:10482:interleaved,num_heads,rotary_embedding_dim
Round 11:1:1:c02: 22:1:1:10c02:
STFT 17:4:1:10cc2:onesided
Scan 8:999:999:fffe:body,directions,num_scan_inputs 9:999:999:fffe:body,num_scan_inputs,scan_input_axes,scan_input_directions,scan_output_axes,scan_output_directions 16:999:999:1fffe:body,num_scan_inputs,scan_input_axes,scan_input_directions,scan_output_axes,scan_output_directions 19:999:999:1ffffe:body,num_scan_inputs,scan_input_axes,scan_input_directions,scan_output_axes,scan_output_directions 21:999:999:7ffffe:body,num_scan_inputs,scan_input_axes,scan_input_directions,scan_output_axes,scan_output_directions 23:999:999:fffffe:body,num_scan_inputs,scan_input_axes,scan_input_directions,scan_output_axes,scan_output_directions 24:999:999:1fffffe:body,num_scan_inputs,scan_input_axes,scan_input_directions,scan_output_axes,scan_output_directions 25:999:999:7fffffe:body,num_scan_inputs,scan_input_axes,scan_input_directions,scan_output_axes,scan_output_directions
ScatterElements 11:3:1:fffe:axis 13:3:1:1fffe:axis 16:3:1:1fffe:axis,reduction
ScatterND 11:3:1:fffe: 13:3:1:1fffe: 16:3:1:1fffe:reduction
Selu 1:1:1:c02:alpha,consumed_inputs,gamma 6:1:1:c02:alpha,gamma 22:1:1:10c02:alpha,gamma
SequenceAt 11:2:1:200000000000fffe:
SequenceConstruct 11:999:1:200000000000fffe:
SequenceEmpty 11:0:1:2000000000000000:dtype
SequenceErase 11:2:1:20000000000000c0:
SequenceInsert 11:3:1:200000000000fffe:
SequenceLength 11:1:1:2000000000000080:
SequenceMap 17:999:999:200000000000fffe:body
Shape 1:1:1:fffe: 13:1:1:1fffe: 15:1:1:1fffe:end,start 19:1:1:1ffffe:end,start 21:1:1:7ffffe:end,start 23:1:1:fffffe:end,start 24:1:1:1fffffe:end,start 25:1:1:7fffffe:end,start
Shrink 9:1:1:3cfe:bias,lambd
Sigmoid 1:1:1:c02:consumed_inputs 6:1:1:c02: 13:1:1:10c02:
Sign 9:1:1:3cfe: 13:1:1:13cfe:
Sin 7:1:1:c02: 22:1:1:10c02:
Sinh 9:1:1:c02: 22:1:1:10c02:
Size 1:1:1:fffe: 13:1:1:1fffe: 19:1:1:1ffffe: 21:1:1:7ffffe: 23:1:1:fffffe: 24:1:1:1fffffe: 25:1:1:7fffffe:
Slice 1:1:1:fffe:axes,ends,starts 10:5:1:fffe: 13:5:1:1fffe:
Softmax 1:1:1:c02:axis 13:1:1:10c02:axis
SoftmaxCrossEntropyLoss 12:3:2:cc2:ignore_index,reduction 13:3:2:10cc2:ignore_index,reduction
Softplus 1:1:1:c02: 22:1:1:10c02:
Softsign 1:1:1:c02: 22:1:1:10c02:
SpaceToDepth 1:1:1:fffe:blocksize 13:1:1:1fffe:blocksize 28:1:1:1fffe:blocksize,mode
Split 1:2:999:c02:axis,split 2:1:999:fffe:axis,split 13:2:999:1fffe:axis 18:2:999:1fffe:axis,num_outputs
SplitToSequence 11:2:1:200000000000fffe:axis,keepdims 24:2:1:200000000001fffe:axis,keepdims
Sqrt 1:1:1:c02:consumed_inputs 6:1:1:c02: 13:1:1:10c02:
Squeeze 1:1:1:fffe:axes 13:2:1:1fffe: 21:2:1:7ffffe: 23:2:1:fffffe: 24:2:1:1fffffe: 25:2:1:7fffffe:
StringConcat 20:2:1:100:
StringNormalizer 10:1:1:100:case_change_action,is_case_sensitive,locale,stopwords
StringSplit 20:1:2:180:delimiter,maxsplit
Sub 1:2:1:c02:axis,broadcast,consumed_inputs 6:2:1:3cc2:axis,broadcast 7:2:1:3cc2: 13:2:1:13cc2: 14:2:1:13cfe:
Sum 1:999:1:c02:consumed_inputs 6:999:1:c02: 13:999:1:10c02:
SwiGLU 28:2:1:10c02:alpha
Swish 24:1:1:10c02:alpha
Tan 7:1:1:c02: 22:1:1:10c02:
Tanh 1:1:1:c02:consumed_inputs 6:1:1:c02: 13:1:1:10c02:
TensorScatter 24:3:1:1fffffe:axis,mode
TfIdfVectorizer 9:1:1:1c2:max_gram_length,max_skip_count,min_gram_length,mode,ngram_counts,ngram_indexes,pool_int64s,pool_strings,weights
ThresholdedRelu 10:1:1:c02:alpha 22:1:1:10c02:alpha
Tile 1:3:1:c82: 6:2:1:fffe: 13:2:1:1fffe:
TopK 1:1:2:c82:axis,k 10:2:2:c82:axis 11:2:2:3cfe:axis,largest,sorted 24:2:2:13cfe:axis,largest,sorted
Transpose 1:1:1:fffe:perm 13:1:1:1fffe:perm 21:1:1:7ffffe:perm 23:1:1:fffffe:perm 24:1:1:1fffffe:perm 25:1:1:7fffffe:perm
Trilu 14:2:1:1fffe:upper
Unique 11:1:4:fffe:axis,sorted 28:1:4:1fffe:axis,sorted
Unsqueeze 1:1:1:fffe:axes 13:2:1:1fffe: 21:2:1:7ffffe: 23:2:1:fffffe: 24:2:1:1fffffe: 25:2:1:7fffffe:
Where 9:3:1:fffe: 16:3:1:1fffe:
Xor 1:2:1:200:axis,broadcast 7:2:1:200:
ai.onnx.ml::ArrayFeatureExtractor 1:2:1:9c2:
ai.onnx.ml::Binarizer 1:1:1:8c2:threshold
ai.onnx.ml::CastMap 1:1:1:8000000000000182:cast_to,map_form,max_map
ai.onnx.ml::CategoryMapper 1:1:1:180:cats_int64s,cats_strings,default_int64,default_string
ai.onnx.ml::DictVectorizer 1:1:1:8000000000000982:int64_vocabulary,string_vocabulary
ai.onnx.ml::FeatureVectorizer 1:999:1:8c2:inputdimensions
ai.onnx.ml::Imputer 1:1:1:8c2:imputed_value_floats,imputed_value_int64s,replaced_value_float,replaced_value_int64
ai.onnx.ml::LabelEncoder 1:1:1:180:classes_strings,default_int64,default_string 2:1:1:182:default_float,default_int64,default_string,keys_floats,keys_int64s,keys_strings,values_floats,values_int64s,values_strings 4:1:1:9e2:default_float,default_int64,default_string,default_tensor,keys_floats,keys_int64s,keys_strings,keys_tensor,values_floats,values_int64s,values_strings,values_tensor
ai.onnx.ml::LinearClassifier 1:1:2:9c2:classlabels_ints,classlabels_strings,coefficients,intercepts,multi_class,post_transform
ai.onnx.ml::LinearRegressor 1:1:1:8c2:coefficients,intercepts,post_transform,targets
ai.onnx.ml::Normalizer 1:1:1:8c2:norm
ai.onnx.ml::OneHotEncoder 1:1:1:9c2:cats_int64s,cats_strings,zeros
ai.onnx.ml::SVMClassifier 1:1:2:9c2:classlabels_ints,classlabels_strings,coefficients,kernel_params,kernel_type,post_transform,prob_a,prob_b,rho,support_vectors,vectors_per_class
ai.onnx.ml::SVMRegressor 1:1:1:8c2:coefficients,kernel_params,kernel_type,n_supports,one_class,post_transform,rho,support_vectors
ai.onnx.ml::Scaler 1:1:1:8c2:offset,scale
ai.onnx.ml::TreeEnsemble 5:1:1:c02:aggregate_function,leaf_targetids,leaf_weights,membership_values,n_targets,nodes_falseleafs,nodes_falsenodeids,nodes_featureids,nodes_hitrates,nodes_missing_value_tracks_true,nodes_modes,nodes_splits,nodes_trueleafs,nodes_truenodeids,post_transform,tree_roots
ai.onnx.ml::TreeEnsembleClassifier 1:1:2:9c2:base_values,class_ids,class_nodeids,class_treeids,class_weights,classlabels_int64s,classlabels_strings,nodes_falsenodeids,nodes_featureids,nodes_hitrates,nodes_missing_value_tracks_true,nodes_modes,nodes_nodeids,nodes_treeids,nodes_truenodeids,nodes_values,post_transform 3:1:2:9c2:base_values,base_values_as_tensor,class_ids,class_nodeids,class_treeids,class_weights,class_weights_as_tensor,classlabels_int64s,classlabels_strings,nodes_falsenodeids,nodes_featureids,nodes_hitrates,nodes_hitrates_as_tensor,nodes_missing_value_tracks_true,nodes_modes,nodes_nodeids,nodes_treeids,nodes_truenodeids,nodes_values,nodes_values_as_tensor,post_transform
ai.onnx.ml::TreeEnsembleRegressor 1:1:1:8c2:aggregate_function,base_values,n_targets,nodes_falsenodeids,nodes_featureids,nodes_hitrates,nodes_missing_value_tracks_true,nodes_modes,nodes_nodeids,nodes_treeids,nodes_truenodeids,nodes_values,post_transform,target_ids,target_nodeids,target_treeids,target_weights 3:1:1:8c2:aggregate_function,base_values,base_values_as_tensor,n_targets,nodes_falsenodeids,nodes_featureids,nodes_hitrates,nodes_hitrates_as_tensor,nodes_missing_value_tracks_true,nodes_modes,nodes_nodeids,nodes_treeids,nodes_truenodeids,nodes_values,nodes_values_as_tensor,post_transform,target_ids,target_nodeids,target_treeids,target_weights,target_weights_as_tensor
ai.onnx.ml::ZipMap 1:1:1:2000000000000002:classlabels_int64s,classlabels_strings
ai.onnx.preview.training::Adagrad 1:999:999:882:decay_factor,epsilon,norm_coefficient
ai.onnx.preview.training::Adam 1:999:999:882:alpha,beta,epsilon,norm_coefficient,norm_coefficient_post
ai.onnx.preview.training::Gradient 1:999:999:fffe:xs,y,zs
ai.onnx.preview.training::Momentum 1:999:999:882:alpha,beta,mode,norm_coefficient
ai.onnx.preview::FlexAttention 1:3:1:10c02:prob_mod,scale,score_mod,softmax_precision
)";

}  // namespace ort
