import TestSupport
import Testing

extension PlainMountTests {
    /// Resources of a daemon that has done something very often.
    @Suite struct Days {
        /// 15,000 checkpoints, because a closure that grew with each one once filled the stack after 12,000. 2,000 locks that
        /// forget, because the allocator's memory grows for the first 500 (then no more in 1,200).
        @Test(
            "memory, stacks, descriptors and time stay the same (scripts/torture-days is the long form)",
            arguments: [
                ["--checkpoints", "15000"], ["--locks", "500"], ["--locks", "2000", "--policy", "forget"],
                ["--opens", "30000"], ["--operations", "30000"],
            ])
        func days(arguments: [String]) throws {
            let programs = try TemporaryDirectory()
            let exercise = programs.appending("file_exercise")
            try Command([
                "gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", exercise, Products.program("file_exercise.c"),
            ])
            .run().succeeded()
            try VaultUnderTest(initialise: false).lockProgram(
                "days.py", arguments + ["--exercise", exercise], timeout: .seconds(180))
        }
    }
}
