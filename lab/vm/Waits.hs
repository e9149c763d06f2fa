-- SPDX-License-Identifier: MIT
-- A thread waits for what another writes. Each line on stdin makes that write 3.
module Main (main) where

import Control.Concurrent
import Control.Monad
import Data.IORef
import System.Environment
import System.Posix.Files (fileExist)

until' :: IO Bool -> IO () -> IO ()
until' test pause = do
  done <- test
  unless done (pause >> until' test pause)

main :: IO ()
main = do
  [how] <- getArgs
  state <- newIORef (0 :: Int)
  box <- newMVar (0 :: Int)
  let is7 = (== 7) <$> readIORef state
      waits = case how of
        "yield" -> until' is7 yield
        "delay" -> until' is7 (threadDelay 1000)
        "box" -> until' ((== 7) <$> readMVar box) yield
        "file" -> until' (fileExist "/tmp/never") (return ())
        _ -> return ()
  _ <- forkIO (forever (getLine >> writeIORef state 3 >> void (swapMVar box 3)))
  waits
