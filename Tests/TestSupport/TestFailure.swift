/// Why a test cannot go on, in words.
package struct TestFailure: Error, CustomStringConvertible {
    package let description: String

    package init(_ description: String) { self.description = description }
}
