// dtrun-pmix, byte for byte, for the agent to carry.
    .section .rodata
    .balign 16
    .global dtrun_pmix_program_begin
    .global dtrun_pmix_program_end
dtrun_pmix_program_begin:
    .incbin DTRUN_PMIX_FILE
dtrun_pmix_program_end:
    .byte 0
    .section .note.GNU-stack, "", %progbits
