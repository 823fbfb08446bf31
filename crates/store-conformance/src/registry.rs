//! The list of all properties. The registry and the tests of each suite are generated from it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::cases;
use crate::factory::Space;
use crate::group::Group;
use crate::stage::TestStage;

/// Passes the list of all properties to a macro: by topic, each property with its group.
#[doc(hidden)]
#[macro_export]
macro_rules! __properties {
    ($context:tt, $($give_to:tt)+) => {
        $($give_to)+! {
            $context
            append {
                core: a_run_begins_with_its_first_append;
                core: records_follow_each_other;
                core: each_entry_has_its_result_in_order;
                core: a_refused_entry_harms_no_other;
                core: a_refused_entry_is_not_written_in_part;
                core: a_run_twice_in_a_batch_counts_once;
                core: a_run_refused_in_a_batch_has_no_second_try;
                core: an_empty_batch_has_no_results;
                core: an_entry_of_a_thousand_records_is_kept_whole;
                core: a_batch_of_two_hundred_runs_is_kept;
            }
            checks {
                core: an_entry_without_records_is_refused;
                core: facts_belong_to_the_first_append;
                core: records_must_be_numbered_densely;
                core: records_must_name_the_one_before;
                core: records_must_be_sealed;
                core: a_run_must_begin_with_a_base;
                core: a_newer_format_is_not_written;
            }
            content {
                core: bodies_are_kept_byte_for_byte;
                core: a_body_of_a_mebibyte_is_kept;
                core: headers_are_kept_field_for_field;
                core: facts_are_kept_field_for_field;
                core: what_was_loaded_can_be_changed_without_harm;
            }
            names {
                core: every_valid_run_id_is_a_run_of_its_own;
                core: every_valid_tenant_is_one_of_its_own;
                core: tenant_and_run_id_do_not_run_together;
                core: the_same_run_id_in_two_tenants_is_two_runs;
            }
            conflict {
                core: an_append_behind_the_head_is_a_conflict;
                core: an_append_after_another_record_of_that_number_is_a_conflict;
                core: an_append_beyond_the_head_is_a_conflict;
                core: an_append_to_a_missing_run_is_a_conflict;
                core: starting_a_run_that_exists_is_a_conflict;
            }
            retry {
                core: a_repeated_append_is_ok_and_written_once;
                core: a_repeated_start_is_ok_and_written_once;
                core: the_end_of_the_log_is_ok_however_it_is_cut;
                core: a_repeat_after_a_later_append_is_a_conflict;
                core: a_repeat_with_another_body_is_refused;
                core: a_repeat_with_another_header_is_refused;
                core: a_repeat_that_adds_a_record_is_a_conflict;
                core: a_repeat_after_pruning_is_ok;
                core: a_repeated_batch_settles_each_entry;
                instances: a_repeat_from_another_instance_is_ok;
                instances: repeats_at_the_same_time_are_written_once;
            }
            load {
                core: a_missing_run_loads_as_none;
                core: a_missing_run_has_no_head;
                core: the_head_follows_each_append;
                core: loading_the_latest_starts_at_the_newest_base;
                core: every_record_can_be_loaded_by_its_number;
                core: every_record_can_be_loaded_by_its_id;
                core: what_came_since_is_loaded;
                core: of_what_is_not_known_any_more_all_is_loaded;
                core: a_number_beyond_the_head_is_not_found;
                core: an_id_of_no_record_is_not_found;
                core: reading_changes_nothing;
                core: a_long_way_from_the_base_is_loaded_whole;
            }
            headers {
                core: headers_come_in_order_from_both_ends;
                core: a_range_holds_no_more_than_asked;
                core: a_range_begins_or_ends_where_asked;
                core: an_answer_holds_a_thousand_headers_at_most;
                core: an_answer_says_what_is_kept;
                core: headers_go_on_while_records_are_added;
                core: headers_go_on_while_records_are_pruned;
                core: a_range_of_nothing_is_empty;
                core: headers_of_a_missing_run_are_not_found;
                instances: a_range_goes_on_in_every_instance;
            }
            runs {
                core: an_empty_store_lists_no_runs;
                core: listed_heads_are_the_heads;
                core: runs_are_ordered_by_creation_then_tenant_then_id;
                core: an_append_does_not_move_a_run_in_listings;
                core: a_page_of_runs_holds_no_more_than_asked;
                core: a_page_of_runs_holds_a_thousand_at_most;
                core: the_last_page_of_runs_has_no_cursor;
                core: runs_in_any_order_are_listed_once_each;
                core: pages_of_runs_go_on_while_runs_are_started;
                core: pages_of_runs_go_on_while_runs_are_purged;
                core: a_run_moves_between_listings_with_its_status;
                core: a_foreign_cursor_of_runs_is_invalid;
                core: a_cursor_of_another_query_or_order_is_invalid;
                instances: a_cursor_of_runs_is_for_every_instance;
            }
            filters {
                core: runs_can_be_listed_by_tenant;
                core: runs_can_be_listed_by_workflow;
                core: runs_can_be_listed_by_user;
                core: runs_can_be_listed_by_status;
                core: runs_can_be_listed_by_labels;
                core: labels_are_taken_literally;
                core: runs_can_be_listed_from_a_time_of_creation;
                core: runs_can_be_listed_up_to_a_time_of_creation;
                core: runs_can_be_listed_by_parent;
                core: runs_can_be_listed_by_owner;
                core: several_conditions_are_all_met;
            }
            heartbeat {
                core: an_owner_is_alive_after_its_heartbeat;
                core: an_owner_without_heartbeat_is_not_alive;
                core: a_heartbeat_is_for_its_executor_alone;
                core: a_run_without_owner_has_none_alive;
                core: a_heartbeat_counts_for_every_run_of_its_executor;
                core: a_heartbeat_expires;
                core: a_later_heartbeat_replaces_a_shorter_one;
                core: a_later_heartbeat_replaces_a_longer_one;
                core: a_heartbeat_of_zero_ends_the_executor;
                core: a_heartbeat_may_be_of_any_length;
                instances: a_heartbeat_counts_for_every_instance;
                clock: a_heartbeat_lasts_exactly_as_long_as_said;
            }
            due {
                core: a_run_without_living_owner_is_orphaned;
                core: only_a_run_in_progress_is_orphaned;
                core: a_run_to_be_woken_is_not_orphaned;
                core: a_run_whose_time_has_come_is_due;
                core: a_run_in_any_status_may_be_due;
                core: a_finished_run_that_has_delivered_is_not_due;
                core: a_run_of_a_living_owner_is_not_due;
                core: an_owner_that_expires_leaves_its_runs;
                core: a_released_run_is_orphaned_at_once;
                core: only_the_head_says_who_owns_and_when_to_wake;
                clock: a_run_becomes_due_when_its_time_comes;
            }
            prune {
                core: pruning_at_a_base_drops_what_is_before_it;
                core: pruning_with_a_base_turns_the_record_into_it;
                core: pruning_at_the_head_keeps_the_head;
                core: pruning_again_removes_nothing;
                core: pruning_what_is_pruned_is_ok;
                core: pruning_at_the_first_record_removes_nothing;
                core: pruning_goes_on_as_the_log_grows;
                core: what_was_pruned_is_not_found;
                core: facts_outlive_pruning;
                core: appends_go_on_after_pruning;
                core: pruning_where_nothing_is_is_not_found;
                core: pruning_at_no_base_needs_one;
                core: pruning_with_another_record_is_refused;
                core: a_base_stays_the_base_it_is;
            }
            purge {
                core: purging_leaves_no_trace;
                core: purging_says_what_it_removed;
                core: purging_a_missing_run_removes_nothing;
                core: purging_one_run_leaves_others;
                core: a_purged_id_can_be_used_again;
                core: a_writer_of_the_old_generation_is_refused;
                core: a_start_of_the_old_generation_is_refused_in_the_new;
                core: a_purge_that_expects_another_head_is_a_conflict;
                core: a_purge_that_expects_the_head_removes_the_run;
                instances: a_purge_counts_for_every_instance;
            }
            reseal {
                core: the_same_record_in_another_envelope_takes_its_place;
                core: what_is_another_record_by_now_is_passed_over;
                core: what_is_out_of_order_or_not_sealed_is_refused;
                instances: appends_go_on_while_records_are_resealed;
                instances: readers_find_every_record_while_it_is_resealed;
            }
            setup {
                core: setup_can_be_repeated;
                instances: setup_is_safe_from_many_instances_at_once;
                core: capabilities_are_constant;
                core: notices_are_sent_as_announced;
                notices: changes_are_noticed;
                instances: what_is_said_is_heard_whole_and_in_order;
            }
            first_setup {
                instances: many_instances_prepare_a_space_at_once;
            }
            concurrency {
                instances: one_of_two_writers_wins;
                instances: one_of_many_starts_wins;
                instances: sixteen_writers_make_one_line;
                core: a_hundred_runs_grow_at_once;
                instances: appends_go_on_while_pruning;
                instances: a_purge_during_appends_ends_the_run;
                instances: of_an_append_and_a_purge_of_one_head_one_wins;
            }
            readers {
                instances: what_a_head_names_can_be_loaded;
                instances: an_append_is_seen_whole_or_not_at_all;
                instances: a_run_that_begins_or_goes_is_there_or_not;
                instances: a_listing_during_writes_has_every_run;
            }
            next_generation {
                instances: a_look_sees_one_generation_or_none;
                instances: readers_see_one_generation_at_a_time;
                instances: what_was_seen_of_one_generation_changes_nothing_in_the_next;
                instances: an_append_spares_the_next_generation;
                instances: a_purge_that_expects_a_head_spares_the_next_generation;
                instances: a_purge_takes_the_next_generation_whole_or_spares_it;
                instances: a_prune_spares_the_next_generation;
                instances: resealing_spares_the_next_generation;
            }
            dropped {
                core: a_dropped_append_is_done_or_not_done;
                core: a_dropped_start_is_done_or_not_done;
                core: a_dropped_prune_can_be_called_again;
                core: a_dropped_purge_can_be_called_again;
                core: a_dropped_purge_that_expects_a_head_spares_the_next_generation;
            }
            damage {
                damage: a_changed_body_is_corrupt;
                damage: a_changed_body_harms_no_other_run;
                damage: a_damaged_run_can_be_purged;
                damage: a_refused_purge_of_a_damaged_run_removes_nothing;
                damage: a_refused_append_to_a_damaged_run_writes_nothing;
                damage: a_damaged_run_in_a_batch_harms_no_other_entry;
                gap: a_missing_record_is_corrupt;
                gap: a_missing_base_is_corrupt;
                torn: a_torn_tail_is_cut_off_or_corrupt;
                newer: a_newer_format_is_unsupported;
                newer: a_newer_format_harms_no_other_run;
                newer: a_refused_purge_of_a_newer_format_removes_nothing;
                newer: a_refused_append_to_a_newer_format_writes_nothing;
                newer: a_newer_format_in_a_batch_harms_no_other_entry;
            }
            misplaced {
                swap: swapped_runs_answer_no_call_falsely;
                swap: swapped_runs_harm_no_other_run;
                swap: swapped_runs_can_be_purged;
                tail: missing_tail_is_never_a_shorter_log;
                tail: missing_tail_takes_no_other_end;
            }
            transactions {
                transactions: commit_keeps_rows_and_record;
                transactions: dropped_transaction_leaves_no_rows;
                transactions: conflict_at_commit_leaves_no_rows;
                transactions: nested_transactions_end_as_asked;
                transactions: refused_statement_leaves_all_or_nothing;
                transactions: database_rollback_refuses_commit;
                transactions: full_database_leaves_all_or_nothing;
                transactions: ended_transaction_refuses_commit;
                transactions: open_nested_transaction_refuses_commit;
                transactions: refused_record_leaves_no_rows;
                transactions: unanswered_commit_keeps_rows_and_record;
                transactions: begin_without_room_is_unavailable;
                transactions: lost_connection_leaves_no_rows;
                transactions: transient_errors_give_way;
                transactions: deferred_constraint_refuses_commit;
            }
            durability {
                durable: what_was_acknowledged_is_there_after_reopening;
                durable: a_repeat_after_reopening_is_ok;
                durable: what_was_removed_is_gone_after_reopening;
            }
            model {
                core: random_calls_are_answered_like_the_model;
                instances: random_calls_to_instances_in_turn_are_answered_like_the_model;
            }
        }
    };
}

/// The topic of the properties that start before any instance has prepared the space.
const UNPREPARED: &str = "first_setup";

/// One requirement of the contract. Its function panics if a store violates the requirement.
pub struct Property {
    topic: &'static str,
    name: &'static str,
    group: Group,
    check: fn(TestStage) -> Pin<Box<dyn Future<Output = ()>>>,
}

impl Property {
    /// Returns the topic. It is the module of the property's test.
    pub fn topic(&self) -> &'static str {
        self.topic
    }

    /// Returns the name of the property's test. The name states the requirement.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the ability that a store needs for this property.
    pub fn group(&self) -> Group {
        self.group
    }

    pub(crate) async fn check(&self, space: Arc<dyn Space>) {
        let stage = match self.topic {
            UNPREPARED => TestStage::open(space).await,
            _ => TestStage::prepared(space).await,
        };
        (self.check)(stage).await;
    }
}

impl fmt::Debug for Property {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}::{} ({})", self.topic, self.name, self.group)
    }
}

macro_rules! registry {
    ([] $($topic:ident { $($group:ident: $name:ident;)* })*) => {
        &[$($(Property {
            topic: stringify!($topic),
            name: stringify!($name),
            group: $crate::__group!($group),
            check: |stage| Box::pin(cases::$topic::$name(stage)),
        },)*)*]
    };
}

/// All properties of the suite, in the order of their topics.
pub static PROPERTIES: &[Property] = __properties!([], registry);
