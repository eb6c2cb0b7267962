// Definitions of event.hpp.
#pragma once

#include <parx/trace/chrome.hpp>  // so that PARX_TRACE works in every program that has a span
#include <parx/trace/detail/recorder.hpp>
#include <parx/trace/event.hpp>

namespace parx::inline PARX_ABI::trace {

PARX_INLINE void detail::record(const event& next) noexcept { recorder::record(next); }

PARX_INLINE void span::open(std::string_view name, literal category) noexcept {
  event_.emplace();
  event_->name = detail::short_text<48>(name);
  event_->category = category.text();
  event_->start_ns = detail::now_ns();
}
PARX_INLINE void span::close() noexcept {
  event_->duration_ns = detail::now_ns() - event_->start_ns;
  detail::record(*event_);
}
PARX_INLINE void span::add(detail::argument next) noexcept {
  if (event_->argument_count == event_->arguments.size()) return;
  event_->arguments[event_->argument_count++] = next;
}

PARX_INLINE void name_thread(std::string_view name) { detail::recorder::name_this_thread(name); }

}  // namespace parx::trace
