// The edits that rows of the upgrade table name, each from one spelling of an op to the next.
#pragma once

#include "csrc/onnx/upgrade.h"

namespace ort::edits {

void same(OldNode& node);

// edits.cpp: attributes that became inputs or got other values.
void axes_as_input(OldNode& node);
void bounds_as_inputs(OldNode& node);
void p_as_integer(OldNode& node);
void paddings_as_pads(OldNode& node);
void pads_as_inputs(OldNode& node);
void shape_as_input(OldNode& node);
void bounds_of_slice_as_inputs(OldNode& node);
void split_as_input(OldNode& node);
void equal_parts_by_number(OldNode& node);
void tiles_as_repeats(OldNode& node);
void k_as_input(OldNode& node);
void value_as_tensor(OldNode& node);
void dtype_by_number(OldNode& node);
void axis_1(OldNode& node);
void old_selu_constants(OldNode& node);
void without_broadcast(OldNode& node);
void without_output_sequence(OldNode& node);
void as_scatter_elements(OldNode& node);
void scales_of_images(OldNode& node);
void scales_as_input(OldNode& node);
void as_resize(OldNode& node);
void as_standard(OldNode& node);
void as_grid_sample(OldNode& node);
void as_unique(OldNode& node);
void as_range(OldNode& node);
void mode_of_any_rank(OldNode& node);
void axis_1_as_input(OldNode& node);
void classes_as_tables(OldNode& node);
void without_half_pixel(OldNode& node);

// meanings.cpp: what meant something else, said with nodes around it.
void broadcast_from_axis(OldNode& node);
void slope_of_channels(OldNode& node);
void test_mode_as_input(OldNode& node);
void ratio_as_input(OldNode& node);
void indices_as_integers(OldNode& node);
void in_test_mode(OldNode& node);
void over_channels(OldNode& node);
void of_one_channel(OldNode& node);
void scales_of_channels(OldNode& node);
void over_flattened(OldNode& node);
void scan_of_batches(OldNode& node);
void as_rms_norm(OldNode& node);

}  // namespace ort::edits
