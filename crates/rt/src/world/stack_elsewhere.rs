//! Stacks for fibers where the host is not Linux: one of corosensei's for each, with a guard page,
//! used again last in, first out.

use corosensei::stack::DefaultStack;

/// One stack.
pub(crate) type Stack = DefaultStack;

/// The stacks of one world.
pub(crate) struct StackPool {
    size: usize,
    free: Vec<Stack>,
}

impl StackPool {
    /// Stacks of at least `size` usable bytes; at least 16 KiB.
    pub fn new(size: usize) -> StackPool {
        StackPool { size: size.max(16 << 10), free: Vec::new() }
    }

    /// A stack, warm if possible.
    ///
    /// # Panics
    /// Where the system gives no more address space.
    pub fn take(&mut self) -> Stack {
        self.free.pop().unwrap_or_else(|| match Stack::new(self.size) {
            Ok(stack) => stack,
            Err(error) => panic!("no address space for more stacks: {error}"),
        })
    }

    pub fn give_back(&mut self, stack: Stack) {
        self.free.push(stack);
    }

    /// Bytes of the deepest stack so far: 0, which stands for unknown.
    pub fn high_water(&self) -> usize {
        0
    }

    /// Usable bytes of a stack.
    pub fn stack_size(&self) -> usize {
        self.size
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corosensei::stack::Stack as _;

    #[test]
    fn a_stack_comes_back_warm() {
        let mut pool = StackPool::new(20 << 10);
        let stack = pool.take();
        let (top, bottom) = (stack.base(), stack.limit());
        assert!(top.get() - bottom.get() >= pool.stack_size());
        pool.give_back(stack);
        let (again, other) = (pool.take(), pool.take());
        assert_eq!((again.base(), again.limit()), (top, bottom));
        assert_ne!(other.base(), top);
        assert_eq!(pool.high_water(), 0, "unknown");
    }
}
