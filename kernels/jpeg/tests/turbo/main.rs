//! Against libjpeg-turbo: the same pixels of whole files, and never "whole" where libjpeg-turbo warns.

#[cfg(test)]
mod damage;
#[cfg(test)]
mod files;
#[cfg(test)]
mod mutate;
#[cfg(test)]
mod mutation;
#[cfg(test)]
mod pixels;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod restart;
#[cfg(test)]
mod same;
