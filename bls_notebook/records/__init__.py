"""Records: frozen plain data. Nothing here draws or runs a model."""

from bls_notebook.lazy_names import offer

offer(__name__, {
    "advice": "advised nearest too_early",
    "base": "plain Printable Record",
    "errors": "BLSError ErrorRecord FileError FrameRecord",
    "measurements": "grouped NONE quartiles Quartiles",
    "messages": "MessageRecord",
    "models": "Change ModelRecord ModelSeen RecordedInstance Stubbed TensorSeen TensorSpecRecord went_through",
    "record_file": "ending_of json_of read_bytes RecordFile told write_file",
    "regular_file": "MAX_CODE MAX_CONFIG MAX_SOURCE open_regular_file read_file replace_file source_text",
    "remedy_words": "ACTIONS on_surface Remedy remedy surfaces",
    "responses": "Figures ITEM_BYTES Media preview ResponseRecord tensor_record TensorRecord TextSeen",
    "statistics":
        "DeviceRecord DeviceTable FamilyRecord MetricRecord statistics_record StatisticsRecord Times why_not_batched",
    "units": "bytes_in count duration listed ns percent quantity shape size some_ns",
    "visible_text": "encodable first_line shortened spoken visible without_traceback",
})  # fmt: skip
