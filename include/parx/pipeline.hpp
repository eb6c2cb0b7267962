// Pipeline parallelism: schedules as tables, proven before they run, drawn and measured. What runs
// them is an engine; parx::parallel is its face.
#pragma once

#include <parx/core/version.hpp>  // first: what compiler parx needs

#include <parx/pipeline/action.hpp>
#include <parx/pipeline/catalog.hpp>
#include <parx/pipeline/csv.hpp>
#include <parx/pipeline/eager_one_f_one_b.hpp>
#include <parx/pipeline/gpipe.hpp>
#include <parx/pipeline/interleaved.hpp>
#include <parx/pipeline/looped_bfs.hpp>
#include <parx/pipeline/measure.hpp>
#include <parx/pipeline/one_f_one_b.hpp>
#include <parx/pipeline/pipeline_engine.hpp>
#include <parx/pipeline/simulate.hpp>
#include <parx/pipeline/validate.hpp>
#include <parx/pipeline/zb1p.hpp>
#include <parx/pipeline/zbv.hpp>
