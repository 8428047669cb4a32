import TestSupport
import Testing

extension PlainMountTests {
    /// Resources of a daemon after very many repetitions.
    @Suite struct Days {
        /// 13,000 checkpoints, because a closure that grew with each once filled the stack after 12,000. 4,000 locks
        /// that forget, because the allocator takes up to 2,000 to reach its size (61.7 MB after 2,500, 62.9 after
        /// 5,000).
        @Test(
            "memory, stacks, descriptors and time stay the same (scripts/torture/days is the long form)",
            arguments: [
                ["--checkpoints", "13000"], ["--locks", "500"], ["--locks", "4000", "--policy", "forget"],
                ["--opens", "12000"], ["--operations", "12000"],
            ])
        func days(arguments: [String]) throws {
            let programs = try TemporaryDirectory()
            let exercise = programs.appending("file_exercise")
            try Command([
                "gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", exercise, Products.program("model/file_exercise.c"),
            ])
            .run().succeeded()
            try VaultUnderTest(initialise: false).mountProgram(
                "model/days.py", arguments + ["--exercise", exercise], timeout: .seconds(180))
        }
    }
}
