//! The names of all keys, by what becomes of them.

/// Keys that are carried out.
#[rustfmt::skip]
pub const SUPPORTED: &[&str] = &[
    "name", "description", "numjobs", "loops", "runtime", "time_based", "startdelay", "ramp_time",
    "stonewall", "wait_for_previous", "new_group", "thread", "group_reporting", "exitall",
    "filename", "directory", "filename_format", "nrfiles", "file_service_type", "unlink",
    "fallocate", "overwrite", "invalidate", "pre_read", "fill_device", "create_only",
    "create_on_open", "create_fsync", "create_serialize", "rw", "readwrite", "rw_sequencer",
    "rwmixread", "rwmixwrite", "percentage_random", "random_distribution", "random_generator",
    "randrepeat", "allrandrepeat", "randseed", "norandommap", "softrandommap", "offset",
    "offset_increment", "number_ios", "bs", "blocksize", "bsrange", "blocksize_range", "bssplit",
    "blockalign", "ba", "bs_unaligned", "blocksize_unaligned", "size", "io_size", "io_limit",
    "filesize", "kb_base", "direct", "buffered", "sync", "fsync", "fdatasync", "end_fsync",
    "fsync_on_close", "ioengine", "iodepth", "rate", "rate_iops", "rate_process", "thinktime",
    "thinktime_blocks", "zero_buffers", "refill_buffers", "scramble_buffers", "buffer_pattern",
    "buffer_compress_percentage", "verify", "verify_pattern", "do_verify", "verify_only",
    "verify_fatal", "write_bw_log", "write_lat_log", "write_iops_log", "log_avg_msec",
    "per_job_logs", "read_iolog", "write_iolog", "replay_no_stall", "replay_redirect",
    "percentile_list", "clat_percentiles", "lat_percentiles", "slat_percentiles", "disable_lat",
    "disable_clat", "disable_slat", "disable_bw_measurement", "disable_bw", "gtod_reduce",
    "bwavgtime", "iopsavgtime", "prio", "prioclass",
];

/// Keys of fio that are refused, because leaving them out would change the result.
#[rustfmt::skip]
pub const REFUSED: &[&str] = &[
    "wait_for", "unique_filename", "opendir", "openfiles", "offset_align", "unified_rw_reporting",
    "file_append", "sync_file_range", "write_barrier", "atomic", "iodepth_batch",
    "iodepth_batch_submit", "iodepth_batch_complete", "iodepth_batch_complete_min",
    "iodepth_batch_complete_max", "iodepth_low", "io_submit_mode", "uri", "rate_min",
    "rate_iops_min", "thinktime_spin", "latency_target", "latency_window", "latency_percentile",
    "max_latency", "flow", "flow_watermark", "flow_sleep", "dedupe_percentage", "verify_backlog",
    "verify_interval", "verify_offset", "verify_state_save", "verify_state_load",
    "experimental_verify", "verify_dump", "verify_async", "write_hist_log", "log_hist_msec",
    "log_max_value", "log_offset", "log_unix_epoch", "log_compression", "replay_time_scale",
    "replay_scale", "replay_align", "replay_skip", "merge_blktrace_file", "steadystate",
    "steadystate_duration", "steadystate_ramp_time", "cgroup", "cgroup_weight", "cgroup_nodelete",
    "ioscheduler", "zonemode", "zonesize", "zonerange", "zoneskip", "profile", "exec_prerun",
    "exec_postrun", "trim_percentage", "trim_verify_zero", "trim_backlog", "rate_cycle",
    "rate_ignore_thinktime", "thinkcycles", "cpuload", "cpuchunks", "nice", "ignore_error",
    "continue_on_error", "exit_what", "exitall_on_error", "io_uring_cmd", "nonvectored",
    "hipri_percentage",
];

/// Keys of fio that are refused, and that change nothing that this front end reports.
#[rustfmt::skip]
pub const NEUTRAL: &[&str] = &[
    "cpus_allowed", "cpus_allowed_policy", "cpumask", "numa_cpu_nodes", "numa_mem_policy", "hipri",
    "registerfiles", "fixedbufs", "sqthread_poll", "sqthread_poll_cpu", "mem", "iomem",
    "iomem_align", "hugepage-size", "lockmem", "lockfile", "significant_figures", "unit_base",
    "allow_mounted_write", "allow_file_create", "uid", "gid", "clocksource", "gtod_cpu",
    "userspace_reap", "fadvise_hint",
];
