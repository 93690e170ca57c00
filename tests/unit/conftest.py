"""Defects that the tests of this directory have found and that are not mended yet, by test: each must still fail.

A line goes with its defect. When the table is empty, so should this file be gone.
"""

import pytest

KNOWN = {
    "test_a_changed_file_is_a_new_inode[True]": "content in memory is served under the etag of a newer one",
    "test_an_open_file_keeps_its_size_when_the_listing_declares_another": "a declared size moves onto the old inode",
    "test_a_size_declared_anew_and_wrong_is_corrected_too": "a declared size moves onto the old inode",
    "test_content_that_returns_changed_after_it_left_the_listing_is_a_new_inode": "a new record has no version",
    "test_a_name_that_another_resource_takes_over_is_told": "a new record has no version",
    "test_new_content_is_a_new_inode_and_the_open_file_keeps_the_old_one": "a pinned inode is never learnt anew",
    "test_lazy_sizes_are_not_kept_by_the_kernel": "a size of 0 has a validity",
    "test_links_of_a_source_are_links_whatever_bytes_they_hold": "a target that is no UTF-8 cannot be encoded",
    "test_a_load_under_way_when_its_update_comes_is_not_taken_for_the_new_content": "an event during a load is lost",
    "test_a_listing_under_way_when_its_event_comes_is_not_taken_for_the_new_one": "an event during a listing is lost",
    "test_an_update_reaches_each_of_several_contents": "parts stay fresh",
    "test_a_content_among_several_that_changes_is_a_new_inode[stat]": "parts declare the size they had",
    "test_several_contents_become_a_directory_and_one_becomes_a_file_again": "parts declare the size they had",
    "test_contents_that_come_and_go_among_several_are_told": "changed names of parts are not told",
    "test_no_content_among_several_is_lost_to_another_of_its_name": "the ~N name of a part may be taken",
    "test_loading_a_resource_of_several_contents_gives_them_all_each_time": "a part is cached under its resource's key",
    "test_a_hierarchical_source_that_is_down_lists_what_was_last_known": "directories are never served stale",
    "test_what_is_cached_is_served_to_load_resource_too": "load_resource serves nothing stale",
    "test_an_update_of_a_source_that_went_down_is_served_stale_within_the_bound": "an event ends max_stale",
    "test_listing_by_path_and_depth[mcp-server+docs+x]": "paths of a fixed scheme need the scheme",
    "test_the_time_to_live_of_the_server_holds_across_mounts": "the listing's own time to live is not remembered",
    "test_arguments_that_do_not_fit_the_mode_are_refused[template-arguments2]": "direct_uris are ignored silently",
    "test_a_stray_scheme_that_comes_and_goes_is_told_at_the_root": "names at the root are never told",
    "test_a_walk_that_begins_again_is_loaded_ahead_again": "going back within the window counts as straggling",
    "test_what_is_damaged_inside_costs_no_more_than_what_was_remembered[pages]": "recall raises",
    "test_what_is_damaged_inside_costs_no_more_than_what_was_remembered[listing]": "recall raises",
    "test_what_is_damaged_inside_costs_no_more_than_what_was_remembered[fields]": "recall raises",
    "test_any_time_of_a_source_can_be_told[253402300800]": "no ISO 8601 beyond the year 9999",
    "test_any_time_of_a_source_can_be_told[1000000000000]": "no ISO 8601 beyond the year 9999",
    "test_any_time_of_a_source_can_be_told[-1000000000000]": "no ISO 8601 before the year 1",
    "test_values_stay_within_the_kernels_limit_and_are_text_and_json[65535]": "text is cut inside a character",
    "test_values_stay_within_the_kernels_limit_and_are_text_and_json[65536]": "text is cut inside a character",
    "test_values_stay_within_the_kernels_limit_and_are_text_and_json[65537]": "text is cut inside a character",
    "test_values_stay_within_the_kernels_limit_and_are_text_and_json[655360]": "text is cut inside a character",
}

NOT_RUN = {"runTest": "fails at random for the two reasons above: a declared size on the old inode, no version"}

SOMETIMES = {
    "test_processes_share_the_file_from_its_first_moment_on": "turning WAL on does not wait for another process"
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.name in KNOWN and "/unit/" in item.path.as_posix():
            item.add_marker(pytest.mark.xfail(reason=KNOWN[item.name], strict=True))
        if item.name in SOMETIMES:
            item.add_marker(pytest.mark.xfail(reason=SOMETIMES[item.name], strict=False))
        if item.name in NOT_RUN and item.path.name == "test_vfs_model.py":
            item.add_marker(pytest.mark.xfail(reason=NOT_RUN[item.name], run=False))
