import LinuxSystem
import Synchronization
import TestSupport
import Testing

@Suite struct ObserverTests {
    @Test("A function that is read and called very often needs no more stack each time")
    func constantStack() {
        let depth = StackDepth()
        let observer = Observer<Int>()
        observer.set { _ in depth.note() }
        for number in 0..<200_000 where depth.growth == 0 {
            observer.notify(number)
            _ = observer.current
        }
        #expect(depth.isNoted && depth.growth == 0)
    }

    @Test("There is no function until one is set, and then it is the last one")
    func replacing() {
        let seen = Mutex<[String]>([])
        let observer = Observer<Void>()
        observer.notify()
        #expect(observer.current == nil)
        observer.set { seen.withLock { $0.append("first") } }
        observer.notify()
        observer.set { seen.withLock { $0.append("second") } }
        observer.notify()
        observer.current?(())
        #expect(seen.withLock { $0 } == ["first", "second", "second"])
    }
}
