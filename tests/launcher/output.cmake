dtrun_test(output
    SOURCES test_output_lines.cpp test_output_tail.cpp test_output_fd.cpp test_output_files.cpp
            test_output_mux.cpp
    DEPS dtrun::launcher)
