// coordinator: carries the coordinator's half of the protocol in generation.hpp. It is in the first
// node's parxrun, beside that node's agent, or alone in a parxrun that has no ranks (--coordinator,
// --hosts). Where there may be several generations, or ranks go on after losses, it keeps the store
// of the present one; else rank 0 does.
//
// The agent beside it is told by calls. Others come in by its door (coordinator_door.hpp), over
// TCP, once they have proved to be of the job; a second parxrun on a node that has one is told so
// and closed. Agents send beats, and it answers each. Each generation has a store of its own, whose
// key contains its number, so that ranks of an earlier one can reach neither it nor the ranks of
// this one. One thread; the store has its own.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "tools/common/job_report.hpp"
#include "tools/parxrun/failures/job_end.hpp"
#include "tools/parxrun/nodes/coordinator_door.hpp"
#include "tools/parxrun/nodes/framed_socket.hpp"
#include "tools/parxrun/nodes/generation.hpp"
#include "tools/parxrun/nodes/generation_ranks.hpp"
#include "tools/parxrun/nodes/job_nodes.hpp"
#include "tools/parxrun/nodes/messages.hpp"
#include <parx/core/descriptor.hpp>
#include <parx/core/env.hpp>
#include <parx/core/job_key.hpp>
#include <parx/core/random_hex.hpp>

namespace parx::inline PARX_ABI::detail {

class coordinator {
 public:
  /// `nodes` outlives this. `command` is that of the ranks, as far as this process knows it, and
  /// `secret` empty where the job has none. `listening` listens at the endpoint; not valid in a job
  /// of one node. `say` gets lines for the console, `record` what is known of the job whenever a
  /// generation has begun or ended, and `report`, which may add to it, how one has ended, before
  /// the next one begins or none does.
  coordinator(boost::asio::io_context& io, const job_nodes& nodes,
              const std::vector<std::string>& command, std::string secret, const environment& env,
              descriptor listening, std::function<void(const std::string&)> say,
              std::function<void(job_report&)> record, std::function<void(job_end&)> report);
  coordinator(const coordinator&) = delete;
  coordinator& operator=(const coordinator&) = delete;
  ~coordinator();

  /// The agent in this process says hello. `tell` gets what the coordinator has to say to it, and
  /// must not call the coordinator before it returns.
  void take_in(const agent_hello& hello, std::function<void(const to_agent&)> tell);
  /// That agent says something else, or has ended.
  void hear(const to_coordinator& text) { receive(*own_, text); }
  void let_go() { forget(*own_); }

  /// Whether the job is over and every agent has heard so, or has gone.
  [[nodiscard]] bool has_ended() const { return is_over() && connections_.empty(); }
  /// Whether as many nodes have been there as the job needs.
  [[nodiscard]] bool all_have_come() const { return next_number_ >= rules_.least_nodes; }
  /// The job's exit code, once it has ended.
  [[nodiscard]] int code() const { return state_.code.value_or(1); }
  [[nodiscard]] bool is_over() const { return state_.phase == coordinator_phase::over; }
  [[nodiscard]] bool has_agents() const { return !connections_.empty(); }
  /// Ends the job: its ranks may save their work. `why` is for the report.
  void end_job(int code, const std::string& why);

 private:
  /// An agent that is admitted, and the way to it.
  struct agent_connection {
    std::function<void(const to_agent&)> tell;
    std::shared_ptr<framed_socket> socket;  ///< null for the agent in this process
    std::string node;
    std::string process;
    int ranks = 0;
    std::uint16_t free_port = 0;  ///< that its agent holds for rank 0's use
    bool told_to_wait = false;

    [[nodiscard]] static agent_connection of(const agent_hello& hello,
                                             std::function<void(const to_agent&)> tell,
                                             std::shared_ptr<framed_socket> socket);
    void close() const {
      if (socket) socket->close();
    }
    /// Numeric; empty in this process, or where the connection is over.
    [[nodiscard]] std::string address() const {
      return socket ? socket->remote_address() : std::string();
    }
  };

  /// None where it is refused.
  [[nodiscard]] std::optional<agent_number> admit(const std::shared_ptr<framed_socket>& socket,
                                                  const agent_hello& hello);
  agent_number enter(agent_connection fresh, int order, std::optional<agent_number> replaces);

  void receive(agent_number number, const to_coordinator& text);
  void hear_of(agent_number number);
  void take(agent_number number, const agent_hello& /*again*/) { hear_of(number); }
  void take(agent_number number, const agent_command& command);
  void take(agent_number number, const rank_ended& end);
  void take(agent_number number, const agent_event& event);

  [[nodiscard]] bool goes_on() const { return rules_.losses == on_loss::go_on; }
  [[nodiscard]] bool runs() const;

  /// Where the ranks go on after losses: one has ended, or, with its node, all of an agent.
  void note_end(int rank, const std::string& how);
  void note_fences(const std::vector<open_fence>& before);
  void end_the_rest();

  void lose(agent_number number, const std::string& why);
  void forget(agent_number number);

  /// The cause of a failure, once more is known of it, has the job's code.
  void blame();

  void handle(const coordinator_event& event, const std::string& why = {});

  /// The machine has dropped agents that were silent for too long.
  void drop_silent();

  /// How the generation has ended, by what is known now.
  [[nodiscard]] job_end end_now() const;
  void tell_end();
  [[nodiscard]] double join_seconds() const;
  [[nodiscard]] std::string names_of_nodes() const;

  /// Says of nodes why nothing happens there, or here.
  void tell_waiting(coordinator_phase before);

  void send(const coordinator_message& message);

  void begin_generation();

  /// The id of the generation's ranks (PARX_RUN_ID).
  [[nodiscard]] std::string run_id() const;

  void record_end(const job_end& end);

  /// What an agent is told of the generation that begins.
  [[nodiscard]] form_order order_for(agent_number to) const;

  [[nodiscard]] std::string nodes_text() const;

  void wait_for_deadline();
  void note_silent();

  const job_nodes& nodes_;
  const generation_rules rules_;
  const std::string secret_;
  const bool encrypts_;
  const std::string name_ = random_hex();  ///< of all that this coordinator starts
  std::function<void(const std::string&)> say_;
  std::function<void(job_report&)> record_;
  std::function<void(job_end&)> report_;
  std::optional<job_key> key_;  ///< of the agents' connections
  boost::asio::steady_timer deadline_;
  coordinator_state state_;
  std::map<agent_number, agent_connection> connections_;  ///< those with a connection
  std::map<std::string, agent_number> former_;            ///< by process: its last number
  std::map<agent_number, node_report> reports_;           ///< of the generation
  job_report job_;
  std::optional<job_end> ended_;  ///< the generation, before the next one begins
  std::string why_;               ///< the generation is stopped
  std::string loss_;              ///< of the first node that the generation has lost
  std::string lost_node_;
  bool was_told_ = false;         ///< an agent was told to end the job
  bool gave_up_waiting_ = false;  ///< for nodes
  agent_number next_number_ = 0;
  std::optional<agent_number> own_;        ///< the agent in this process
  std::optional<generation_ranks> ranks_;  ///< of the generation
  std::optional<coordinator_door> door_;
};

}  // namespace parx::detail
